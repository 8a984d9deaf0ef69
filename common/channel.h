// SPDX-License-Identifier: Apache-2.0
// The channel between the daemon and one rank: a SOCK_SEQPACKET socket pair on which one datagram
// is one frame, a header and its payload. Both ends are of one build, so payloads are raw structs.
// Both ends check every frame nevertheless, since a faulty rank may send anything.
#ifndef CPATTN_COMMON_CHANNEL_H
#define CPATTN_COMMON_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"

// Descriptor of the channel in a rank process.
#define CHANNEL_FD 3

// Number for a duplicate of CHANNEL_FD in the rank process, near the highest possible. The kernel
// closes the descriptors of a dead process from the last to the first, and a driver may take a
// tenth of a second for one. With a high number, the daemon sees the channel close before that
// delay.
int channel_last_fd(void);

#define CHANNEL_MAGIC   UINT32_C(0x43504154) // "CPAT"
#define CHANNEL_VERSION 2

// X(name, number, who sends it). Payloads: HELLO struct channel_hello; CASE struct job_frame
// (plan/kind.h), a job of any kind;
// REPORT report_bytes() of a struct rank_report; FAILED struct rank_failure (common/report.h);
// TENSORS struct places_frame (plan/places.h); READY up to EXCHANGE_TEXT_MAX - 1 characters that
// describe how the ranks exchange data; the others none.
#define CHANNEL_TYPE_LIST(X)                                                                       \
    X(HELLO, 1)   /* rank: the process is up */                                                    \
    X(READY, 2)   /* rank: connected to its peers, takes cases */                                  \
    X(CASE, 3)    /* daemon: run this */                                                           \
    X(REPORT, 4)  /* rank: the outcome of a case */                                                \
    X(FAILED, 5)  /* rank: no outcome, and why */                                                  \
    X(STOP, 6)    /* daemon: leave in peace */                                                     \
    X(PING, 7)    /* daemon */                                                                     \
    X(PONG, 8)    /* rank: answers a ping */                                                       \
    X(TENSORS, 9) /* daemon: memory for the case that comes next, with its descriptors */

enum channel_type {
#define CHANNEL_ENUM(name, number) CHANNEL_##name = number,
    CHANNEL_TYPE_LIST(CHANNEL_ENUM)
#undef CHANNEL_ENUM
};

// The header of a frame. `generation` counts the starts of a pool; the receiver drops frames of
// earlier starts. `job` is the daemon's number of the case that the frame belongs to, or 0.
struct channel_frame {
    uint32_t magic;
    uint16_t type; // enum channel_type
    uint16_t version;
    uint32_t generation;
    uint32_t length; // bytes of payload
    uint64_t job;
};
_Static_assert(sizeof(struct channel_frame) == 24, "the frame header has padding");

#define CHANNEL_BUILD_ID_MAX 64
struct channel_hello {
    int32_t pid;
    int32_t rank;
    char build_id[CHANNEL_BUILD_ID_MAX]; // NUL-terminated, zeros after it
};

// Fills in the first message of a rank. Zeroes the unused bytes.
void channel_hello_fill(struct channel_hello *hello, int pid, int rank);

// Checks the first message of a rank. DATA_LOSS: it is no HELLO of this rank; FAILED_PRECONDITION:
// it is of another build with other payloads.
enum status channel_hello_check(const struct channel_frame *frame, const void *payload, int rank,
                                struct error *error) MUST_CHECK;

// Name of a type, such as "HELLO"; "?" for an unknown one.
const char *channel_type_name(int type);

// Creates a connected pair, both ends close-on-exec: ends[0] for the daemon, non-blocking; ends[1]
// for the rank, blocking. RESOURCE_EXHAUSTED: out of descriptors or memory.
enum status channel_pair(int ends[2], struct error *error) MUST_CHECK;

// Sends one frame, and never waits. `payload` may be NULL when `length` is 0. RESOURCE_EXHAUSTED:
// the peer does not read and its queue is full; UNAVAILABLE: the peer is gone; INVALID_ARGUMENT:
// length over CHANNEL_PAYLOAD_MAX or an unknown type; INTERNAL otherwise.
enum status channel_send(int fd, enum channel_type type, uint32_t generation, uint64_t job,
                         const void *payload, uint32_t length, struct error *error) MUST_CHECK;

// The same, and sends copies of `count` descriptors, at most CHANNEL_FDS_MAX. The caller keeps its
// own.
#define CHANNEL_FDS_MAX 2
enum status channel_send_fds(int fd, enum channel_type type, uint32_t generation, uint64_t job,
                             const void *payload, uint32_t length, const int *fds, int count,
                             struct error *error) MUST_CHECK;

// Receives one frame; waits for it if the descriptor is blocking. `payload` has room for
// CHANNEL_PAYLOAD_MAX bytes and is aligned for the structs it may hold. NOT_FOUND: nothing there
// yet (non-blocking descriptor); UNAVAILABLE: the peer is gone; DATA_LOSS: not a frame, or one cut
// short, too long or of an unknown type; FAILED_PRECONDITION: a frame of another channel version;
// INTERNAL otherwise. After DATA_LOSS and FAILED_PRECONDITION the caller must not use the channel
// any more. The contents of `payload` are undefined unless the frame was received.
enum status channel_recv(int fd, struct channel_frame *frame, void *payload,
                         struct error *error) MUST_CHECK;

// The same, and receives *count descriptors, which are close-on-exec. The caller must close them,
// also after a failure. channel_recv() closes all descriptors that it receives.
enum status channel_recv_fds(int fd, struct channel_frame *frame, void *payload,
                             int fds[CHANNEL_FDS_MAX], int *count, struct error *error) MUST_CHECK;

// OK if the frame carries exactly `length` bytes of payload, else DATA_LOSS.
enum status channel_expect(const struct channel_frame *frame, uint32_t length,
                           struct error *error) MUST_CHECK;

#endif
