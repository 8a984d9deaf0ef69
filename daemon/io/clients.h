// SPDX-License-Identifier: Apache-2.0
// The table of connections. Threads of the server library add and mark; the loop thread looks up
// and sweeps. Bounded and without allocation after init. All functions may be called from any
// thread.
#ifndef CPATTN_DAEMON_IO_CLIENTS_H
#define CPATTN_DAEMON_IO_CLIENTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"

// Connections of the daemon to itself, admitted beyond the cap: a probe must tell a full house from
// a dead listener.
#define CLIENTS_OWN_MAX 8

struct clients {
    pthread_mutex_t lock;
    int limit; // connections of others
    int count, own;
    bool any_gone;
    struct client {
        uint32_t id; // 0: free
        int listener;
        bool own, gone;
    } table[CLIENTS_MAX + CLIENTS_OWN_MAX];
};

// `limit`: 1..CLIENTS_MAX.
void clients_init(struct clients *c, int limit);
void clients_fini(struct clients *c);

// `listener`: any number that tells where it came in. False when the house is full; the connection
// is to be closed then.
bool clients_add(struct clients *c, uint32_t id, int listener, bool own);

// Connections in the table.
int clients_count(struct clients *c);

// Connections that came in there and are not gone.
int clients_of_listener(struct clients *c, int listener);

// Marks a connection as ended; false when it never was in the table.
bool clients_mark_gone(struct clients *c, uint32_t id);

// Whether the connection is in the table, ended or not.
bool clients_known(struct clients *c, uint32_t id);

// Takes one ended connection out of the table; false when there is none.
bool clients_take_gone(struct clients *c, uint32_t *id);

#endif
