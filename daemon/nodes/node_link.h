// SPDX-License-Identifier: Apache-2.0
// One end of the connection between a daemon and an agent: sends and receives messages, and sends a
// heartbeat each second. The link ends if the other end is silent for LINK_SILENT_NS, or reads so
// slowly that LINK_OUT_MAX bytes are unsent. All calls on the loop's thread.
#ifndef CPATTN_DAEMON_NODES_NODE_LINK_H
#define CPATTN_DAEMON_NODES_NODE_LINK_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/net/tls.h"
#include "daemon/nodes/node_wire.h"

#define LINK_SILENT_NS (UINT64_C(3) * 1000000000)
// Maximum number of unsent bytes.
#define LINK_OUT_MAX   (UINT64_C(16) << 20)
#define LINK_EARLY_MAX 4096 // maximum bytes of messages that wait for the TLS handshake
// Above this number of unsent bytes, messages that may be lost are dropped: node_link_is_full().
#define LINK_OUT_FULL  (UINT64_C(1) << 20)

struct node_link;

struct node_link_handler {
    void *context;
    // Called for each message; its length is checked (node_header_check()). The body is valid
    // during the call and aligned for the structs of node_wire.h. If the handler does not return
    // OK, the link ends.
    enum status (*message)(void *context, struct node_link *link, enum node_message type,
                           const void *body, size_t size, struct error *error);
    // The link has ended; no more messages follow. Called once, never from within another call of
    // the link. The handler destroys the link.
    void (*ended)(void *context, struct node_link *link, const struct error *error);
};

// Takes over a connected socket. `tls`: encrypts the link, and the link takes a reference; NULL:
// not encrypted. With `host`, `tls` is from tls_connect_create() and the link connects to that
// host; with host NULL it is from tls_create() and the link is the server's side. Messages sent
// during the handshake are stored, up to LINK_EARLY_MAX bytes. NULL: memory is short; the socket is
// closed.
struct node_link *node_link_create(struct ev_loop *loop, int fd,
                                   const struct node_link_handler *handler, struct tls *tls,
                                   const char *host);

// Closes the link without a call of `ended`. Must not be called in `message`. Accepts NULL.
void node_link_destroy(struct node_link *link);

// Sends or queues a message of two parts; the second may be empty. No effect on a link that has
// ended or is ending.
void node_link_send(struct node_link *link, enum node_message type, const void *body, size_t size,
                    const void *more, size_t more_size);

// Ends the link: `ended` follows in the next round of the loop.
void node_link_end(struct node_link *link, const struct error *error);

// Receives no more messages and writes the queued ones for up to a second; then node_link_end().
void node_link_finish(struct node_link *link, const struct error *error);

// True if more than LINK_OUT_FULL bytes are unsent.
bool node_link_is_full(const struct node_link *link);

int node_link_fd(const struct node_link *link);

#endif
