// SPDX-License-Identifier: Apache-2.0
// One connection of a client: turns received bytes into frames and replies into sent bytes, through
// TLS if the connection has it. Allocates memory for received and for unsent bytes, never for
// announced ones; a connection without either has no buffer, except for a TLS session of fixed
// size. It closes nothing by itself: it reports, and the server decides.
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
    bool secured;             // true after the handshake, and if there is none
    size_t tls_left;          // bytes that TLS may still read in this turn
    struct peer peer;         // the subject is set by the handshake
    ev_io readable, writable; // set up by the server
    bool greeted;
    bool drained;      // the last read took all that was there; not with TLS
    bool ended;        // nothing more will come
    bool broken;       // nothing more can be sent
    const char *fault; // half a sentence if it must be closed for a fault; else NULL
    uint8_t *in;       // received bytes; NULL: none
    size_t in_begin, in_end, in_room;
    size_t in_taken;   // bytes of the last frame before in_begin, to be wiped
    uint64_t in_ns;    // when the incomplete greeting or frame began
    struct list out;   // replies that could not be written yet
    size_t out_bytes;  // memory of these
    uint64_t out_ns;   // when the first of these became the next to be written
    size_t *out_total; // over all connections
    // The server's.
    struct server *server;
    struct list all, turn; // on its lists
    struct list shake;     // of shakes.h
    bool shaking;          // its handshake is under way
    struct list exchanges;
    int held;     // on that list
    bool paused;  // not read
    bool hung_up; // its peer is gone; bytes that it sent before may still be unread
    int strikes;  // refusals for a missing or wrong token
    uint64_t struck_ns;
};

enum connection_input { CONNECTION_NOTHING, CONNECTION_FRAME, CONNECTION_OVER };

// Takes over the descriptor and sends the greeting, after the handshake if there is `tls` (NULL:
// none). Keeps `out_total` up to date. Returns NULL, and closes the descriptor, if memory is short.
struct connection *connection_create(struct ev_loop *loop, int fd, enum framing framing,
                                     struct tls *tls, size_t *out_total);

// Closes the connection and discards unwritten replies. Accepts NULL.
void connection_destroy(struct connection *c);

// Returns the next frame; its views are valid until the next call, which wipes them. Continues the
// handshake while it lasts; reads at most once, or the rest of one TLS record. OVER: the client has
// closed its end, or broken the protocol (`fault`).
enum connection_input connection_next(struct connection *c, struct frame *frame);

// True if buffered frames may remain although the descriptor is not readable.
bool connection_has_input(const struct connection *c);

// Sends a reply, or stores what the socket does not take. A reply that cannot be stored is a fault.
void connection_send(struct connection *c, const uint8_t *header, size_t header_bytes,
                     const void *data, size_t size);

// Call when the socket is writable again.
void connection_flush(struct connection *c);

// Discards unwritten replies; nothing more is sent.
void connection_break(struct connection *c);

// Asks the kernel whether the peer is gone; for connections that are not read.
bool connection_hung_up(const struct connection *c);

// Returns what the client has failed to do in time; NULL: nothing. `limit_ns` is the time limit of
// a greeting including the TLS handshake before it, and of a frame from its first to its last byte.
// A reply has half of it from when it is the next to be written.
const char *connection_overdue(const struct connection *c, uint64_t now_ns, uint64_t limit_ns);

#endif
