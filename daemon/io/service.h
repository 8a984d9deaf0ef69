// SPDX-License-Identifier: Apache-2.0
// Between the clients, the pool core and the rank processes: requests become events, the core's
// actions become starts, kills and replies. Decides nothing that the core could decide.
#ifndef CPATTN_DAEMON_IO_SERVICE_H
#define CPATTN_DAEMON_IO_SERVICE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/guests.h"
#include "daemon/io/confine.h"
#include "daemon/io/deposits.h"
#include "daemon/io/peaks.h"
#include "daemon/io/server.h"
#include "daemon/user_list.h"
#include "proto/wire.h"

struct service_config {
    struct wire_description description; // as clients are told; the limits in it are kept
    const char *rank_program;            // borrowed
    const struct guests *guests;         // borrowed; those of the description, in this order
    struct confinement confinement;
    uint64_t start_timeout_ns;
    bool shares_devices; // a pool may have more ranks than there are devices
    bool spares;         // a second pool stands by behind each
    uint64_t idle_timeout_ns;
    int user_queue_max;       // cases of one user, up to the description's queue_max
    struct user_list allowed; // empty: everybody
    struct token token;       // of clients over a network; "": none is asked
    int descriptors_max;      // that this process may open
    struct peaks peaks;       // of the devices
};

struct service;

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

// What may change while it serves. What was admitted stays.
struct service_limits {
    int user_queue_max;
    struct user_list allowed;
    struct token token;
    uint64_t idle_timeout_ns;
    int64_t memory_bytes_max;
};
void service_limit(struct service *service, const struct service_limits *limits);

// No new cases from now on; `exited` is called once those admitted are answered.
void service_drain(struct service *service);

// The same, but those admitted are answered UNAVAILABLE and their ranks killed at once.
void service_stop(struct service *service);

// Once a second.
void service_tick(struct service *service);

// Cases queued and running, pools with ranks, for a line of text.
void service_counts(struct service *service, int *queued, int *running, int *pools);

#endif
