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

// For a greeting with the handshake of TLS before it, and for a frame from its first byte to its
// last.
#define CONNECTION_FRAME_NS (UINT64_C(10) * 1000000000)
// For a reply, from when it is the next to be written.
#define CONNECTION_REPLY_NS (UINT64_C(5) * 1000000000)

struct server;

struct connection {
    struct ev_loop *loop;
    int fd;
    enum framing framing;
    struct tls_session *tls;  // NULL: none
    bool secured;             // the handshake is over, where there is one to be
    size_t tls_left;          // bytes that TLS may still read in this turn
    struct peer peer;         // its subject as of the handshake
    ev_io readable, writable; // set up by the server
    bool greeted;
    bool ended;        // nothing more will come
    bool broken;       // nothing more can be sent
    const char *fault; // half a sentence, once it has to be closed for one
    uint8_t *in;       // NULL: nothing is here
    size_t in_begin, in_end, in_room;
    size_t in_taken;   // bytes before in_begin that the last frame had, to be wiped
    uint64_t in_ns;    // when what is here of a greeting or frame began
    struct list out;   // what could not be written yet
    size_t out_bytes;  // of it, as memory
    uint64_t out_ns;   // when its first was the next to be written
    size_t *out_total; // over all connections
    // The server's.
    struct server *server;
    struct list all, turn; // on its lists
    struct list shake;     // of shakes.h
    bool shaking;          // its handshake is under way
    struct list exchanges;
    int held;     // on that list
    bool paused;  // not read
    bool hung_up; // its peer is gone; what it sent before may still be there
    int strikes;  // how often it was refused for want of the token
    uint64_t struck_ns;
};

enum connection_input { CONNECTION_NOTHING, CONNECTION_FRAME, CONNECTION_OVER };

// Takes the descriptor over and sends the greeting, once the handshake is over where there is `tls`
// (NULL: none). `out_total` is kept up to date. NULL: no memory, and the descriptor is closed.
struct connection *connection_create(struct ev_loop *loop, int fd, enum framing framing,
                                     struct tls *tls, size_t *out_total);

// Discards what was not written. Takes NULL.
void connection_destroy(struct connection *c);

// The next frame; its views are valid until the next call, which wipes them. Goes on with the
// handshake while that is not over; reads at most once, or what is left of one record of TLS. OVER:
// the client has closed its end, or broken the rules (`fault`).
enum connection_input connection_next(struct connection *c, struct frame *frame);

// Whether frames may be at hand without the kernel having anything to tell.
bool connection_has_input(const struct connection *c);

// Sends a reply, or keeps what the socket does not take. One that does not fit into memory is a
// fault.
void connection_send(struct connection *c, const uint8_t *header, size_t header_bytes,
                     const void *data, size_t size);

// To be called when the socket takes bytes again.
void connection_flush(struct connection *c);

// Discards what was not written; nothing more is sent.
void connection_break(struct connection *c);

// Whether the peer is gone, asked of the kernel; for connections that are not read.
bool connection_hung_up(const struct connection *c);

// What the client has failed to do in time; NULL: nothing.
const char *connection_overdue(const struct connection *c, uint64_t now_ns);

#endif
