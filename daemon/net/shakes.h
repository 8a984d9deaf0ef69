// SPDX-License-Identifier: Apache-2.0
// Concurrent TLS handshakes, limited in total and per host, so that their memory and time are
// bounded and every host gets through. Further ones wait unread.
#ifndef CPATTN_DAEMON_NET_SHAKES_H
#define CPATTN_DAEMON_NET_SHAKES_H

#include <stdbool.h>

#include "common/list.h"

// One takes up to 200 KiB.
#define SHAKES_MAX      64
#define SHAKES_HOST_MAX 16

struct connection;

struct shakes {
    struct list under_way, waiting; // connections, by `shake`
    int count;                      // under way
};

void shakes_init(struct shakes *s);

// Whether the connection, whose handshake is not over, may go on with it. If not, it waits.
bool shakes_begin(struct shakes *s, struct connection *c);

// Its handshake is over, or it is about to be closed; also where it had not begun. Gives one that
// waited and may try again, or NULL.
struct connection *shakes_end(struct shakes *s, struct connection *c);

#endif
