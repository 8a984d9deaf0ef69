// SPDX-License-Identifier: Apache-2.0
// Pages over HTTP on the loopback interface, for monitors. A page is built on the loop's thread for
// each request. Few connections are served at a time, with a pause after each step, so that endless
// requests take a bounded share of the loop's time. Only http.c uses the HTTP library; a build
// without the library has http_none.c instead, in which http_create() fails.
#ifndef CPATTN_DAEMON_NET_HTTP_H
#define CPATTN_DAEMON_NET_HTTP_H

#include <ev.h>
#include <stdbool.h>

#include "common/status.h"
#include "daemon/settings/metrics_address.h"

struct http;

struct http_page {
    int code;         // 200, 503 ...
    const char *type; // "text/plain; charset=utf-8"
    char *text;       // from malloc(); NULL: memory was short
};

struct http_handler {
    void *context;
    // Creates the page of a path; false: there is none.
    bool (*page)(void *context, const char *path, struct http_page *page);
};

// Listens. FAILED_PRECONDITION: the address is in use; UNAVAILABLE: the system refused;
// UNIMPLEMENTED: this build has no HTTP, or the library is not installed.
enum status http_create(struct ev_loop *loop, const struct metrics_address *address,
                        const struct http_handler *handler, struct http **http,
                        struct error *error) MUST_CHECK;

// Ends all connections. Accepts NULL.
void http_destroy(struct http *http);

// Call several times a second: ends connections that exceed their time limit. Accepts NULL.
void http_tick(struct http *http);

#endif
