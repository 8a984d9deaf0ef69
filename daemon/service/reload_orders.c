// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/reload_orders.h"

#include <stddef.h>

#include "daemon/service/reply.h"

enum status reload_orders_keep(struct reload_orders *orders, struct exchange *exchange,
                               const struct wire_request *request, struct reload_order **kept,
                               struct error *error)
{
    for (int i = 0; i < RELOAD_ORDERS_MAX; i++) {
        if (orders->list[i].exchange)
            continue;
        *kept = &orders->list[i];
        **kept = (struct reload_order){.exchange = exchange, .id = request->id};
        return STATUS_OK;
    }
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "%d orders to reload wait until the settings are read; try again later",
                     RELOAD_ORDERS_MAX);
}

static void answer(struct reload_order *order, const struct error *error, enum wire_reload outcome)
{
    const struct wire_request request = {.id = order->id};
    struct wire_reply done = {.id = order->id, .method = METHOD_ORDER, .done = (uint64_t)outcome};
    reply_done(order->exchange, &request, error ? NULL : &done, error);
    order->exchange = NULL;
}

void reload_orders_answer(struct reload_orders *orders, const struct error *error,
                          enum wire_reload outcome)
{
    for (int i = 0; i < RELOAD_ORDERS_MAX; i++) {
        struct reload_order *order = &orders->list[i];
        if (order->exchange && !order->follows)
            answer(order, error, outcome);
        order->follows = false;
    }
}

void reload_orders_end(struct reload_orders *orders, const struct error *error)
{
    for (int i = 0; i < RELOAD_ORDERS_MAX; i++)
        if (orders->list[i].exchange)
            answer(&orders->list[i], error, RELOAD_BEGUN);
}
