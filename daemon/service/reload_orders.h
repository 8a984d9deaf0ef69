// SPDX-License-Identifier: Apache-2.0
// Orders of administrators to reload, which are answered when the settings are read.
#ifndef CPATTN_DAEMON_SERVICE_RELOAD_ORDERS_H
#define CPATTN_DAEMON_SERVICE_RELOAD_ORDERS_H

#include <stdbool.h>

#include "common/status.h"
#include "daemon/net/server.h"
#include "proto/wire.h"

#define RELOAD_ORDERS_MAX 16

struct reload_order {
    struct exchange *exchange; // NULL: free
    struct request_id id;
    bool follows; // a reload was in progress; the reload after it answers the order
};

struct reload_orders {
    struct reload_order list[RELOAD_ORDERS_MAX];
};

// Stores an order and takes its exchange. RESOURCE_EXHAUSTED: RELOAD_ORDERS_MAX orders wait.
enum status reload_orders_keep(struct reload_orders *orders, struct exchange *exchange,
                               const struct wire_request *request, struct reload_order **kept,
                               struct error *error) MUST_CHECK;

// A reload has ended: answers its orders with the error, or if that is NULL with the outcome,
// RELOAD_APPLIED or RELOAD_NEEDS_RESTART. Orders that follow wait for the next reload.
void reload_orders_answer(struct reload_orders *orders, const struct error *error,
                          enum wire_reload outcome);

// Answers all orders with an error.
void reload_orders_end(struct reload_orders *orders, const struct error *error);

#endif
