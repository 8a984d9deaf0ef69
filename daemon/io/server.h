// SPDX-License-Identifier: Apache-2.0
// The socket of the daemon: requests in, replies out, connections gone. Knows bytes, not their
// meaning.
//
// Threads of nng do two things only: put a finished operation on a queue, and wake the loop. All
// handlers run on the loop thread, which is the only one to call anything here. There are always
// contexts that receive, so that an overload can be answered and an end of connection is noticed.
#ifndef CPATTN_DAEMON_IO_SERVER_H
#define CPATTN_DAEMON_IO_SERVER_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct server;
struct exchange; // one request and its reply

struct server_config {
    const char *path; // of the socket
    int requests_max; // that wait for their reply at once, beside those answered immediately
    int clients_max;  // connections, 1..CLIENTS_MAX
};

struct server_handler {
    void *context;
    // A request arrived. `data` is valid during the call. The exchange belongs to the handler until
    // it calls server_reply() or server_drop(), at once or later.
    void (*request)(void *context, struct exchange *exchange, uint32_t client, const void *data,
                    size_t size);
    // A connection is gone. Its exchanges must still be ended.
    void (*client_gone)(void *context, uint32_t client);
};

// Locks, listens and starts to receive. Errors as listener_init(), or RESOURCE_EXHAUSTED.
enum status server_create(struct ev_loop *loop, const struct server_config *config,
                          const struct server_handler *handler, struct server **server,
                          struct error *error) MUST_CHECK;

// Closes all connections and removes the socket file. Exchanges that were not ended are dropped.
// Where the library hangs on the way, its part is abandoned to the end of the process, which has to
// follow. Takes NULL.
void server_destroy(struct server *server);

// Sends the reply (copied) and ends the exchange. A client that does not read it within 5 s loses
// it.
void server_reply(struct exchange *x, const void *data, size_t size);

// Ends the exchange without a reply.
void server_drop(struct exchange *x);

// To be called several times a second: disconnects a client that pins contexts by not reading its
// replies, when contexts have become rare.
void server_tick(struct server *server, uint64_t now_ns);

// How many connections of this process to itself have been let in so far. From any thread.
unsigned server_own_connections(const struct server *server);

// Whether the library has stopped taking connections down: those of this process to itself pile up.
// nng up to 1.5 comes to that when a connection ends while a reply goes out and a request is half
// read. It goes on to serve, but soon has no room for new connections; a restart is due.
bool server_stuck(struct server *server);

// The cure for a listener that lets nobody in any more; see daemon/io/listener.h.
enum status server_reopen(struct server *server, struct error *error) MUST_CHECK;

// Twice a second: disconnects clients that a dead listener keeps from being served.
void server_sweep(struct server *server);

// When the last reply was handed over, 0: never. nng reports a reply as sent before it is written,
// so closing the socket within some 200 ms may lose it.
uint64_t server_last_reply_ns(const struct server *server);

#endif
