// SPDX-License-Identifier: Apache-2.0
// The sockets of the daemon, in the file system and optionally on a network. Delivers requests,
// sends replies, reports closed connections. Does not interpret the bytes. Everything runs on the
// loop's thread.
//
// No client can block the loop or other clients: a round of the loop serves a limited number of
// requests, in turns of the connections, after all other watchers of that round. No client can
// occupy unlimited memory: requests without a reply are counted per connection and in total, and a
// connection at its limit is not read; unread replies are bounded by size and time, and end the
// connection.
#ifndef CPATTN_DAEMON_NET_SERVER_H
#define CPATTN_DAEMON_NET_SERVER_H

#include <ev.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/net/connection.h"

// Requests of one connection that wait for their reply. More than any client has a use for; a
// client with as many is not read until it has fewer.
#define CONNECTION_REQUESTS_MAX 1024
// Of one connection, replies that could not be written: from the first on it is not read; beyond
// the second, which takes many requests that end at once, it is closed.
#define CONNECTION_OUT_PAUSE    (256 * 1024)
#define CONNECTION_OUT_MAX      (16 * REPLY_BYTES_MAX)
// Of all connections; beyond, the one that keeps most is closed.
#define SERVER_OUT_MAX          (64 * REPLY_BYTES_MAX)

// Refusals for want of the token that a connection survives, less one.
#define CONNECTION_STRIKES_MAX 3

struct server;
struct exchange; // one request and its reply

// Where clients come in over a network.
struct server_port {
    int fd;          // listens and does not block; borrowed
    struct tls *tls; // NULL: without; the server becomes a holder of it
};

struct server_config {
    const char *path;               // of the socket
    int requests_max;               // that wait for their reply at once; beyond, nobody is read
    int clients_max;                // connections, 1..CLIENTS_MAX; those beyond are closed at once
    int user_clients_max;           // of one user
    const struct server_port *port; // NULL: none
};

struct server_handler {
    void *context;
    // A request arrived. `peer` and `data` are valid during the call. The exchange belongs to the
    // handler until it calls server_reply() or server_drop(), at once or later.
    void (*request)(void *context, struct exchange *exchange, const struct peer *peer,
                    const void *data, size_t size);
    // A connection is gone; all that it had sent was handed over before. Its exchanges must still
    // be ended.
    void (*client_gone)(void *context, uint32_t client);
};

// Locks, listens and starts to serve. Errors as listener_init() and listener_open(), or
// RESOURCE_EXHAUSTED.
enum status server_create(struct ev_loop *loop, const struct server_config *config,
                          const struct server_handler *handler, struct server **server,
                          struct error *error) MUST_CHECK;

// Closes all connections and removes the socket file. Exchanges that were not ended are dropped.
// Takes NULL.
void server_destroy(struct server *server);

// Sends the reply (copied) and ends the exchange. A client that does not take it within 5 s loses
// its connection.
void server_reply(struct exchange *x, const void *data, size_t size);

// Ends the exchange without a reply.
void server_drop(struct exchange *x);

// To be said (and is logged) before the reply that refuses a request for want of the token. A
// connection that has come to CONNECTION_STRIKES_MAX of these is closed once its replies are
// written.
void server_strike(struct exchange *x);

// For the connections to come; NULL where the port has no TLS.
void server_set_tls(struct server *server, struct tls *tls);

// To be called several times a second: closes connections that are late with something.
void server_tick(struct server *server, uint64_t now_ns);

// Takes no more connections and requests. `done` is called once, at once or later, when the last
// reply is written or given up.
void server_finish(struct server *server, void (*done)(void *context), void *context);

#endif
