// SPDX-License-Identifier: Apache-2.0
// Limits the concurrent TLS handshakes, in total and per host: bounds their memory and time, and
// lets every host get through. A connection beyond the limits waits, and is not read.
#ifndef CPATTN_DAEMON_NET_SHAKES_H
#define CPATTN_DAEMON_NET_SHAKES_H

#include <stdbool.h>

#include "common/list.h"

// A handshake takes up to 200 KiB.
#define SHAKES_MAX      64
#define SHAKES_HOST_MAX 16

struct connection;

struct shakes {
    struct list under_way, waiting; // connections, linked by connection.shake
    int count;                      // length of under_way
};

void shakes_init(struct shakes *s);

// Call before each step of a handshake. True: the connection may continue. False: it waits until
// shakes_end() returns it.
bool shakes_begin(struct shakes *s, struct connection *c);

// Call when the handshake of the connection is over, and when a connection is closed, even one
// whose handshake had not begun. Returns the waiting connection that takes its place, or NULL.
struct connection *shakes_end(struct shakes *s, struct connection *c);

#endif
