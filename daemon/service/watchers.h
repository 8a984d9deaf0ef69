// SPDX-License-Identifier: Apache-2.0
// Clients that wait for the next event. Events that occur close together are delivered in one
// reply, about 50 ms late, so that the loop's work for many watchers does not grow with the events.
#ifndef CPATTN_DAEMON_SERVICE_WATCHERS_H
#define CPATTN_DAEMON_SERVICE_WATCHERS_H

#include <ev.h>

#include "daemon/net/server.h"
#include "daemon/service/events.h"

struct watchers;

// `events` is borrowed.
enum status watchers_create(struct ev_loop *loop, const struct events *events,
                            struct watchers **watchers, struct error *error) MUST_CHECK;

// Open exchanges remain with the server. Accepts NULL.
void watchers_destroy(struct watchers *w);

// Takes a WATCH request: answers it at once or stores it. RESOURCE_EXHAUSTED: too many are stored,
// of this user or in total; the exchange then remains with the caller.
enum status watchers_take(struct watchers *w, struct exchange *exchange,
                          const struct wire_request *request, const struct peer *peer, bool rules,
                          struct error *error) MUST_CHECK;

// Call when there may be new events.
void watchers_notice(struct watchers *w);

void watchers_client_gone(struct watchers *w, uint32_t client);

// Answers all watchers, and later ones at once.
void watchers_close(struct watchers *w);

#endif
