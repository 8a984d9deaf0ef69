// SPDX-License-Identifier: Apache-2.0
// Concurrent TLS handshakes, limited in total and per host, so that their memory and time are
// bounded and every host gets through. Further ones wait unread.
#ifndef CPATTN_DAEMON_NET_SHAKES_H
#define CPATTN_DAEMON_NET_SHAKES_H

#include <stdbool.h>

#include "common/list.h"

// A handshake takes up to 200 KiB.
#define SHAKES_MAX      64
#define SHAKES_HOST_MAX 16

struct connection;

struct shakes {
    struct list under_way, waiting; // connections, by `shake`
    int count;                      // under way
};

void shakes_init(struct shakes *s);

// True if the connection may continue its handshake; if not, it waits.
bool shakes_begin(struct shakes *s, struct connection *c);

// The handshake of the connection is over, or the connection is being closed, even if the handshake
// had not begun. Returns the waiting connection that takes its place, or NULL.
struct connection *shakes_end(struct shakes *s, struct connection *c);

#endif
