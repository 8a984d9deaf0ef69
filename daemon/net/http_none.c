// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/http.h"

enum status http_create(struct ev_loop *loop, const struct metrics_address *address,
                        const struct http_handler *handler, struct http **http, struct error *error)
{
    (void)loop;
    (void)handler;
    (void)http;
    return error_set(error, STATUS_UNIMPLEMENTED,
                     "metrics: %s: this build has no HTTP; configure it with --with-microhttpd",
                     address->text);
}

void http_destroy(struct http *http)
{
    (void)http;
}

void http_tick(struct http *http)
{
    (void)http;
}
