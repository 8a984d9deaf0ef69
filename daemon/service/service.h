// SPDX-License-Identifier: Apache-2.0
// Connects clients, pool core and rank processes: reports requests as events to the core, and
// carries out the core's actions: starts, kills and replies. Leaves decisions to the core.
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

// Creates the service. `exited` is called when a drain is complete: all cases are answered, and no
// rank is alive except stuck ones.
enum status service_create(struct ev_loop *loop, const struct service_config *config,
                           void (*exited)(void *context), void *context, struct service **service,
                           struct error *error) MUST_CHECK;

// Kills and reaps the remaining ranks. Call after the server is destroyed. Accepts NULL.
void service_destroy(struct service *service);

// The handler for the server; its context is the service.
struct server_handler service_handler(struct service *service);

// Sets the deposits of clients' tensors, which are borrowed while requests are served. Call before
// the first request.
void service_set_deposits(struct service *service, struct deposits *deposits);
// `check` of struct deposits_handler; its context is the service.
enum status service_check_peer(void *service, const struct peer *peer, struct error *error);

// Sets the function that begins a reload when an administrator orders it; its context is that of
// `exited`. It sets *follows to true if a reload is in progress; the ordered one follows that. Call
// before the first request.
void service_on_reload(struct service *service,
                       enum status (*reload)(void *context, bool *follows, struct error *error));

// A reload has ended, with an error, or if that is NULL with this outcome. Answers its orders.
void service_reloaded(struct service *service, const struct error *error, enum wire_reload outcome);

// Settings that may change in a running daemon.
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
// Applies new settings. Admitted cases keep the old ones.
void service_limit(struct service *service, const struct service_limits *limits);

// Begins to drain: admits no more cases. `exited` follows when the admitted ones are answered and
// the ranks have ended.
void service_drain(struct service *service);

// Like service_drain(), but answers the admitted cases UNAVAILABLE and kills their ranks at once.
void service_stop(struct service *service);

// Returns its pools, for nodes_join().
struct crews *service_crews(struct service *service);

// The agent of a host is lost or connected. Call crews_host_lost() after service_host_lost().
void service_host_lost(struct service *service, int host);
void service_host_back(struct service *service, int host);

// Call once a second: ends processes that ranks have left behind.
void service_tick(struct service *service);

// The text of the metrics (daemon/service/metrics.h), from malloc(). NULL: memory is short.
char *service_metrics(struct service *service);

// As core_obstacle().
const char *service_obstacle(const struct service *service);

// Returns the numbers of queued and running cases, and of pools that are up.
void service_counts(struct service *service, int *queued, int *running, int *pools);

#endif
