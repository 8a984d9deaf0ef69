// SPDX-License-Identifier: Apache-2.0
// Watchers: clients that wait for the next event. Events that occur close together are delivered in
// one reply, about 50 ms late, so that the loop's work does not grow with the number of events.
#ifndef CPATTN_DAEMON_SERVICE_WATCHERS_H
#define CPATTN_DAEMON_SERVICE_WATCHERS_H

#include <ev.h>

#include "daemon/net/server.h"
#include "daemon/service/events.h"

struct watchers;

// `events` is borrowed.
enum status watchers_create(struct ev_loop *loop, const struct events *events,
                            struct watchers **watchers, struct error *error) MUST_CHECK;

// Frees the watchers; open exchanges remain with the server. Accepts NULL.
void watchers_destroy(struct watchers *w);

// Takes a WATCH request: answers it at once or stores it. `rules`: the client is an administrator.
// RESOURCE_EXHAUSTED: too many are stored, of this user or in total; the exchange then remains with
// the caller.
enum status watchers_take(struct watchers *w, struct exchange *exchange,
                          const struct wire_request *request, const struct peer *peer, bool rules,
                          struct error *error) MUST_CHECK;

// Call when there may be new events.
void watchers_notice(struct watchers *w);

// Drops the watchers of a client that is gone.
void watchers_client_gone(struct watchers *w, uint32_t client);

// Answers all watchers; later WATCH requests are answered at once.
void watchers_close(struct watchers *w);

#endif
