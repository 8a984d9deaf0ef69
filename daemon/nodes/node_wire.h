// SPDX-License-Identifier: Apache-2.0
// Messages between a daemon and the agents on its other hosts: a byte stream of headers and bodies.
// Bodies are structs in the layout of the build; HELLO ensures that both ends are of the same
// build. Neither end trusts the other: the length is checked before a body is read, and members are
// checked where they are used.
#ifndef CPATTN_DAEMON_NODES_NODE_WIRE_H
#define CPATTN_DAEMON_NODES_NODE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/channel.h"
#include "common/limits.h"
#include "common/status.h"

#define NODE_MAGIC   UINT32_C(0x43504e44) // "CPND"; reads differently in the other byte order
#define NODE_VERSION 1

// X(name, number, minimum and maximum bytes of the body)
#define NODE_MESSAGE_LIST(X)                                                                       \
    X(HELLO, 1, sizeof(struct node_hello),                                                         \
      sizeof(struct node_hello)) /* agent, first: its identity */                                  \
    X(WELCOME, 2, 0, 0)          /* daemon: it may stay */                                         \
    X(REFUSED, 3, sizeof(struct node_fault), sizeof(struct node_fault)) /* daemon: the reason */   \
    X(BEAT, 4, 0, 0)                                                    /* both, each second */    \
    X(START, 5, sizeof(struct node_start),                                                         \
      sizeof(struct node_start)) /* daemon: ranks of a pool */                                     \
    X(FRAME, 6, sizeof(struct node_frame), sizeof(struct node_frame) + CHANNEL_PAYLOAD_MAX)        \
    /* both: a frame of a rank's channel, followed by its payload */                               \
    X(SIGNAL, 7, sizeof(struct node_order), sizeof(struct node_order))       /* daemon */          \
    X(KILL, 8, sizeof(struct node_order), sizeof(struct node_order))         /* daemon */          \
    X(STOP, 9, sizeof(struct node_order), sizeof(struct node_order))         /* daemon */          \
    X(NOT_STARTED, 10, sizeof(struct node_fault), sizeof(struct node_fault)) /* agent */           \
    X(DISTRUSTED, 11, sizeof(struct node_fault), sizeof(struct node_fault)) /* agent: of a rank */ \
    X(ENDING, 12, sizeof(struct node_end), sizeof(struct node_end))         /* agent */            \
    X(GONE, 13, sizeof(struct node_end), sizeof(struct node_end))           /* agent */            \
    X(WROTE, 14, sizeof(struct node_rank), sizeof(struct node_rank) + NODE_WROTE_MAX)              \
    /* agent: bytes of a rank's stderr */                                                          \
    X(SEEN, 15, sizeof(struct node_seen), sizeof(struct node_seen)) /* agent: how a rank fares */

enum node_message {
#define NODE_ENUM(name, number, least, most) NODE_##name = number,
    NODE_MESSAGE_LIST(NODE_ENUM)
#undef NODE_ENUM
};

#define NODE_WROTE_MAX    8192
#define NODE_ADDRESS_MAX  64 // of a numeric address with its NUL
#define NODE_KEY_BYTES    16
#define NODE_BUILD_ID_MAX 96

struct node_header {
    uint32_t length; // of the body
    uint32_t type;   // enum node_message
};

struct node_hello {
    uint32_t magic, version;
    char build_id[NODE_BUILD_ID_MAX];
    char token[TOKEN_BYTES_MAX + 1];
    char name[HOST_NAME_BYTES];
    char backend[16];
    int32_t device_count;
    uint32_t mesh_port;
    char mesh_address[NODE_ADDRESS_MAX]; // "": the address that the connection comes from
};

// A rank of a pool. Messages about a whole pool ignore `rank`.
struct node_rank {
    uint32_t generation;
    int32_t pool, rank;
};

struct node_fault {
    struct node_rank at;
    int32_t status; // enum status, not OK
    char text[ERROR_TEXT_MAX];
};

struct node_start {
    struct node_rank at;
    int32_t implementation, world_size;
    int32_t host;                    // number of the host that receives this
    uint8_t key[NODE_KEY_BYTES];     // presented by sockets between ranks: mesh_port.h
    uint8_t hosts[WORLD_SIZE_MAX];   // host of each rank, below HOSTS_MAX
    int16_t devices[WORLD_SIZE_MAX]; // device of each rank on its host, from 0
    struct {
        uint32_t port;                  // 0: no rank is there
        char address[NODE_ADDRESS_MAX]; // "": that at which the agent reaches the daemon
    } meet[HOSTS_MAX];                  // mesh ports of the hosts
};

struct node_frame {
    struct node_rank at;
    uint32_t type; // enum channel_type
    uint64_t job;
};

struct node_order {
    struct node_rank at;
    int32_t number; // SIGNAL: number of the signal; else 0
};

struct node_end {
    struct node_rank at;
    int32_t kind, number; // as in struct rank_end
};

struct node_seen {
    struct node_rank at;
    char state;              // state letter of the process: rank_child_state()
    uint8_t at_memory_limit; // 0 or 1
    uint64_t word;           // the rank's struct progress
};

#define NODE_BODY_MAX (sizeof(struct node_frame) + CHANNEL_PAYLOAD_MAX)
#define NODE_SIZE_MAX (sizeof(struct node_header) + NODE_BODY_MAX)

// The name of a type, such as "HELLO"; "?" for a number that is no type.
const char *node_message_name(uint32_t type);

// Checks type and length of a header. DATA_LOSS.
enum status node_header_check(const struct node_header *header, struct error *error) MUST_CHECK;

// Writes the id of this build: package version, protocol versions and sizes of structs.
void node_build_id(char text[NODE_BUILD_ID_MAX]);

// True if `text` has its NUL within `size` bytes and is printable ASCII.
bool node_text_ok(const char *text, size_t size);

// Checks a START: counts, hosts, devices. DATA_LOSS.
enum status node_start_check(const struct node_start *start, struct error *error) MUST_CHECK;

#endif
