// SPDX-License-Identifier: Apache-2.0
// Serves the daemon's unix socket and optionally a network port. Delivers requests, sends replies,
// reports closed connections. Does not interpret the bytes. Everything runs on the loop's thread.
//
// No client can block the loop or other clients: a round of the loop serves a limited number of
// requests, in turns of the connections (turns.h), after all other watchers of that round. No
// client can occupy unlimited memory: requests without a reply are limited per connection and in
// total, and a connection at its limit is not read. Unread replies are limited in size and time;
// beyond the limit the connection is closed.
#ifndef CPATTN_DAEMON_NET_SERVER_H
#define CPATTN_DAEMON_NET_SERVER_H

#include <ev.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/net/connection.h"

// Upper bound of the requests of one connection that wait for their reply; no client needs so many.
// A connection at the bound is not read.
#define CONNECTION_REQUESTS_MAX 1024
// Bytes of unwritten replies of one connection. At the first bound the connection is not read;
// above the second, which is reached only if many requests end at once, it is closed.
#define CONNECTION_OUT_PAUSE    (256 * 1024)
#define CONNECTION_OUT_MAX      (16 * REPLY_BYTES_MAX)
// Bytes of unwritten replies of all connections; above the bound, the connection with most bytes is
// closed.
#define SERVER_OUT_MAX          (64 * REPLY_BYTES_MAX)

// A connection is closed at this number of refusals for a missing or wrong token.
#define CONNECTION_STRIKES_MAX 3

struct server;
struct exchange; // one request and its reply

// The socket for network clients.
struct server_port {
    int fd;          // listening, non-blocking; borrowed
    struct tls *tls; // NULL: none; the server takes a reference
};

struct server_config {
    const char *path;               // of the socket
    int requests_max;               // requests without a reply; at the bound nothing is read
    int clients_max;                // connections, 1..CLIENTS_MAX; further ones are closed at once
    int user_clients_max;           // connections of one user
    uint64_t client_timeout_ns;     // limit_ns of connection_overdue()
    const struct server_port *port; // NULL: no network
};

struct server_handler {
    void *context;
    // A request has arrived. `peer` and `data` are valid during the call. The exchange belongs to
    // the handler until it calls server_reply() or server_drop(), at once or later.
    void (*request)(void *context, struct exchange *exchange, const struct peer *peer,
                    const void *data, size_t size);
    // A connection is closed; all its requests were delivered before. The handler must still end
    // its exchanges.
    void (*client_gone)(void *context, uint32_t client);
};

// Locks the path, listens and starts to serve. Errors as listener_init() and listener_open(), or
// RESOURCE_EXHAUSTED.
enum status server_create(struct ev_loop *loop, const struct server_config *config,
                          const struct server_handler *handler, struct server **server,
                          struct error *error) MUST_CHECK;

// Closes all connections and removes the socket file. Drops exchanges that were not ended. Accepts
// NULL.
void server_destroy(struct server *server);

// Sends the reply, which is copied, and ends the exchange. A client that does not read it in time
// loses its connection. Without a connection the reply is dropped.
void server_reply(struct exchange *x, const void *data, size_t size);

// Ends the exchange without a reply.
void server_drop(struct exchange *x);

// Counts and logs a refusal for a missing or wrong token; call before the reply. At
// CONNECTION_STRIKES_MAX the connection is closed after its replies are written.
void server_strike(struct exchange *x);

// Sets the TLS of future connections; NULL: the port has none.
void server_set_tls(struct server *server, struct tls *tls);

// Call several times a second: closes connections that exceed a time limit.
void server_tick(struct server *server, uint64_t now_ns);

// Accepts no more connections and reads no more requests. Calls `done` once, during this call or
// later, when the last reply is written or given up.
void server_finish(struct server *server, void (*done)(void *context), void *context);

#endif
