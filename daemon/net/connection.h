// SPDX-License-Identifier: Apache-2.0
// One connection of a client: converts received bytes to frames and replies to sent bytes, through
// TLS if the connection has it. Allocates memory for bytes that are received or unsent, never for
// bytes that are only announced. A connection without such bytes has no buffer, except for a TLS
// session of fixed size. A connection never closes itself: it reports, and the server decides.
#ifndef CPATTN_DAEMON_NET_CONNECTION_H
#define CPATTN_DAEMON_NET_CONNECTION_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/list.h"
#include "daemon/net/frame.h"
#include "daemon/net/peer.h"
#include "daemon/net/tls.h"

struct server;

struct connection {
    struct ev_loop *loop;
    int fd;
    enum framing framing;
    struct tls_session *tls;  // NULL: none
    bool secured;             // the handshake is over, or the connection has no TLS
    size_t tls_left;          // bytes that TLS may still read in this turn
    struct peer peer;         // the subject is set by the handshake
    ev_io readable, writable; // set up by the server
    bool greeted;
    bool drained;      // the last read emptied the socket's receive queue; never set with TLS
    bool ended;        // the client has closed its end: nothing more will come
    bool broken;       // nothing more can be sent
    const char *fault; // half a sentence: why the connection must be closed; NULL: no fault
    uint8_t *in;       // received bytes; NULL: none
    size_t in_begin, in_end, in_room;
    size_t in_taken;   // bytes of the last returned frame, which end at in_begin; to be wiped
    uint64_t in_ns;    // when the incomplete greeting or frame began
    struct list out;   // replies that could not be written yet
    size_t out_bytes;  // memory of the list `out`
    uint64_t out_ns;   // when the first reply of `out` became the next to be written
    size_t *out_total; // out_bytes of all connections together
    // Members of the server.
    struct server *server;
    struct list all, turn; // nodes of the server's list of connections and of turns.h
    struct list shake;     // node of shakes.h
    bool shaking;          // its handshake is under way
    struct list exchanges; // requests without a reply
    int held;              // length of `exchanges`
    bool paused;           // not read
    bool hung_up;          // its peer is gone; bytes that it sent before may still be unread
    int strikes;           // refusals for a missing or wrong token
    uint64_t struck_ns;    // time of the last refusal
};

enum connection_input { CONNECTION_NOTHING, CONNECTION_FRAME, CONNECTION_OVER };

// Takes over the descriptor and sends the greeting; with `tls` (NULL: no TLS) after the handshake.
// Keeps *out_total up to date. Returns NULL, and closes the descriptor, if memory is short.
struct connection *connection_create(struct ev_loop *loop, int fd, enum framing framing,
                                     struct tls *tls, size_t *out_total);

// Closes the connection and discards unwritten replies. Accepts NULL.
void connection_destroy(struct connection *c);

// Returns the next frame; its views are valid until the next call, which wipes them. First
// continues an unfinished handshake. Reads at most once, or the rest of one TLS record. OVER: the
// client has closed its end, or `fault` is set.
enum connection_input connection_next(struct connection *c, struct frame *frame);

// Sends a reply, or stores what the socket does not take. A reply that cannot be stored is a fault.
void connection_send(struct connection *c, const uint8_t *header, size_t header_bytes,
                     const void *data, size_t size);

// Call when the socket is writable again.
void connection_flush(struct connection *c);

// Discards unwritten replies; nothing more is sent.
void connection_break(struct connection *c);

// Asks the kernel whether the peer is gone. For paused connections, which are not read.
bool connection_hung_up(const struct connection *c);

// Returns which time limit the client has exceeded, as half a sentence; NULL: none. `limit_ns` is
// the time limit of TLS handshake and greeting together, and of a frame from its first to its last
// byte. A reply has half of that, from the time at which it is the next to be written.
const char *connection_overdue(const struct connection *c, uint64_t now_ns, uint64_t limit_ns);

#endif
