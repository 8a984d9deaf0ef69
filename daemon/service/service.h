// SPDX-License-Identifier: Apache-2.0
// Connects clients, pool core and rank processes: turns requests into events of the core, and the
// core's actions into starts, kills and replies. Leaves decisions to the core.
#ifndef CPATTN_DAEMON_SERVICE_SERVICE_H
#define CPATTN_DAEMON_SERVICE_SERVICE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/net/deposits.h"
#include "daemon/net/server.h"
#include "daemon/service/service_config.h"
#include "daemon/settings/user_list.h"
#include "proto/wire.h"

struct service;
struct crews;

// `exited` is called when the core has drained: all is answered and no rank is alive.
enum status service_create(struct ev_loop *loop, const struct service_config *config,
                           void (*exited)(void *context), void *context, struct service **service,
                           struct error *error) MUST_CHECK;

// Kills and reaps what is left. To be called when the server is gone. Takes NULL.
void service_destroy(struct service *service);

// The handler for the server; its context is the service.
struct server_handler service_handler(struct service *service);

// Where clients' tensors are handed in; borrowed, for the life of the service from its first
// request on. The check is that of struct deposits_handler, its context the service.
void service_set_deposits(struct service *service, struct deposits *deposits);
enum status service_check_peer(void *service, const struct peer *peer, struct error *error);

// What an administrator's order to reload calls, with the context of `exited`; before the first
// request.
void service_on_reload(struct service *service, void (*reload)(void *context));

// What may change while it serves. What was admitted stays.
struct service_limits {
    int user_queue_max;
    struct user_limits user;
    uint64_t timeout_max_ns;
    struct user_list allowed, administrators;
    struct subject_list subjects;
    struct token token;
    uint64_t idle_timeout_ns;
    int64_t memory_bytes_max;
};
void service_limit(struct service *service, const struct service_limits *limits);

// No new cases from now on; `exited` is called once those admitted are answered.
void service_drain(struct service *service);

// The same, but those admitted are answered UNAVAILABLE and their ranks killed at once.
void service_stop(struct service *service);

// The pools of it, for those who run ranks on other hosts.
struct crews *service_crews(struct service *service);

// An agent of a host is gone, or there. The pools hear of it after this (crews_host_lost()).
void service_host_lost(struct service *service, int host);
void service_host_back(struct service *service, int host);

// Once a second.
void service_tick(struct service *service);

// The daemon in figures (daemon/service/metrics.h), and whether it takes no more cases. From
// malloc(); NULL: memory is short.
char *service_metrics(struct service *service, bool *draining);

// Cases queued and running, pools with ranks, for a line of text.
void service_counts(struct service *service, int *queued, int *running, int *pools);

#endif
