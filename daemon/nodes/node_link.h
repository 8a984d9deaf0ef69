// SPDX-License-Identifier: Apache-2.0
// One end of the connection between a daemon and an agent: messages in, messages out, a beat each
// second. Memory is bounded: an end that does not read is given up, as is one that is silent for
// LINK_SILENT_NS. All calls on the loop's thread.
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
// Bytes that the other end has not taken.
#define LINK_OUT_MAX   (UINT64_C(16) << 20)
#define LINK_EARLY_MAX 4096
// From this on what may be lost is left out: node_link_is_full().
#define LINK_OUT_FULL  (UINT64_C(1) << 20)

struct node_link;

struct node_link_handler {
    void *context;
    // A message, its length checked; the body is valid for the call and aligned for the structs.
    // Not OK: the link ends for it.
    enum status (*message)(void *context, struct node_link *link, enum node_message type,
                           const void *body, size_t size, struct error *error);
    // It has ended; nothing more comes. Called once, never from within another call of the link;
    // node_link_destroy() is what is left to do.
    void (*ended)(void *context, struct node_link *link, const struct error *error);
};

// Takes over a connected socket. With `tls`, of which it holds a reference, all is encrypted: to
// `host`, by tls_connect_create(), or with NULL from whoever has connected, by tls_create(). What
// is sent during the handshake waits, up to LINK_EARLY_MAX bytes. NULL: memory is short, and the
// socket is closed.
struct node_link *node_link_create(struct ev_loop *loop, int fd,
                                   const struct node_link_handler *handler, struct tls *tls,
                                   const char *host);

// Closes it without `ended`. Not from `message`. Takes NULL.
void node_link_destroy(struct node_link *link);

// Sends a message of two parts, the second may be empty, at once or as the other end takes it.
// Without effect on a link that has ended or is about to.
void node_link_send(struct node_link *link, enum node_message type, const void *body, size_t size,
                    const void *more, size_t more_size);

// Ends it: `ended` follows in the next round of the loop.
void node_link_end(struct node_link *link, const struct error *error);

// What was sent is written first, for up to a second; then as node_link_end().
void node_link_finish(struct node_link *link, const struct error *error);

// Whether the other end is behind.
bool node_link_is_full(const struct node_link *link);

int node_link_fd(const struct node_link *link);

#endif
