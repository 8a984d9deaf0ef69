// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/http.h"

#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Few connections are enough: monitors ask every few seconds.
#define CONNECTIONS_MAX 8
#define CONNECTION_S    5           // time limit in seconds of an idle connection
#define MEMORY_BYTES    (16 * 1024) // for each connection
// Pause after each step; a step serves every connection once.
#define REST_S          0.01

#define LIBRARY "libmicrohttpd.so.12"

// The library depends on others, a TLS library among them. It is loaded only if metrics are on, so
// that a daemon without metrics does not have them in memory.
#define FUNCTIONS(X)                                                                               \
    X(MHD_start_daemon)                                                                            \
    X(MHD_stop_daemon)                                                                             \
    X(MHD_run)                                                                                     \
    X(MHD_get_timeout)                                                                             \
    X(MHD_get_daemon_info)                                                                         \
    X(MHD_create_response_from_buffer)                                                             \
    X(MHD_add_response_header)                                                                     \
    X(MHD_queue_response)                                                                          \
    X(MHD_destroy_response)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} library;

struct http {
    struct MHD_Daemon *mhd;
    struct ev_loop *loop;
    ev_io ready;
    ev_timer rest;
    struct http_handler handler;
};

// ---- requests ----------------------------------------------------------------------------------

static enum MHD_Result answer(struct MHD_Connection *connection, struct http_page *page)
{
    struct MHD_Response *response = library.MHD_create_response_from_buffer(
        page->text ? strlen(page->text) : 0, page->text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(page->text);
        return MHD_NO;
    }
    library.MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, page->type);
    library.MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (page->code == MHD_HTTP_METHOD_NOT_ALLOWED)
        library.MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = library.MHD_queue_response(connection, (unsigned)page->code, response);
    library.MHD_destroy_response(response);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, int code, const char *text)
{
    struct http_page page = {code, "text/plain; charset=utf-8", strdup(text)};
    return answer(connection, &page);
}

// Called when the header of a request has arrived, and again when the request is complete.
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
                                  const char *path, const char *method, const char *version,
                                  const char *data, size_t *size, void **seen)
{
    static char mark;
    struct http *h = context;
    struct http_page page = {MHD_HTTP_OK, "text/plain; charset=utf-8", NULL};
    (void)version;
    (void)data;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD are served\n");
    if (!*seen) {
        *seen = &mark;
        return MHD_YES;
    }
    *size = 0; // the body is ignored
    if (!h->handler.page(h->handler.context, path, &page))
        return refuse(connection, MHD_HTTP_NOT_FOUND, "there are /metrics, /healthz and /readyz\n");
    if (!page.text)
        return refuse(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "memory is short\n");
    return answer(connection, &page);
}

// ---- the loop ----------------------------------------------------------------------------------

static void step(struct http *h)
{
    ev_io_stop(h->loop, &h->ready);
    library.MHD_run(h->mhd);
    if (ev_is_active(&h->rest))
        return;
    ev_timer_set(&h->rest, REST_S, 0.);
    ev_timer_start(h->loop, &h->rest);
}

static void on_ready(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    step(watcher->data);
}

// Ends the pause. Asks the library whether it has work left, because its epoll descriptor does not
// report that.
static void on_rest(struct ev_loop *loop, ev_timer *watcher, int events)
{
    struct http *h = watcher->data;
    MHD_UNSIGNED_LONG_LONG wait_ms;
    (void)events;
    if (library.MHD_get_timeout(h->mhd, &wait_ms) == MHD_YES && wait_ms == 0)
        step(h);
    else
        ev_io_start(loop, &h->ready);
}

void http_tick(struct http *h)
{
    if (h)
        library.MHD_run(h->mhd);
}

// ---- life --------------------------------------------------------------------------------------

static enum status library_load(const struct metrics_address *address, struct error *error)
{
    void *loaded = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    bool whole = loaded;
#define LOAD(name)                                                                                 \
    library.name = loaded ? (__typeof__(library.name))dlsym(loaded, #name) : NULL;                 \
    whole = whole && library.name;
    FUNCTIONS(LOAD)
#undef LOAD
    return whole ? STATUS_OK
                 : error_set(error, STATUS_UNIMPLEMENTED,
                             "metrics: %s: cannot load " LIBRARY "; install it (Debian: "
                             "libmicrohttpd12)",
                             address->text);
}

static enum status listen_on(const struct metrics_address *address, int *fd, struct error *error)
{
    const int on = 1;
    int opened = socket(address->socket.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (opened >= 0)
        setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (opened >= 0 &&
        bind(opened, (const struct sockaddr *)&address->socket, address->length) == 0 &&
        listen(opened, CONNECTIONS_MAX) == 0) {
        *fd = opened;
        return STATUS_OK;
    }
    enum status status = errno == EADDRINUSE ? STATUS_FAILED_PRECONDITION : STATUS_UNAVAILABLE;
    error_set(error, status, "metrics: cannot listen on %s: %s%s", address->text, strerror(errno),
              errno == EADDRINUSE || errno == EACCES ? "; choose another port with --metrics" : "");
    if (opened >= 0)
        close(opened);
    return status;
}

enum status http_create(struct ev_loop *loop, const struct metrics_address *address,
                        const struct http_handler *handler, struct http **http, struct error *error)
{
    int fd = -1;
    enum status status = library_load(address, error);
    if (status == STATUS_OK)
        status = listen_on(address, &fd, error);
    if (status != STATUS_OK)
        return status;
    struct http *h = calloc(1, sizeof(*h));
    const union MHD_DaemonInfo *info = NULL;
    if (h) {
        h->loop = loop;
        h->handler = *handler;
        h->mhd = library.MHD_start_daemon(
            MHD_USE_EPOLL, 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, fd,
            MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
            (unsigned)CONNECTION_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY_BYTES,
            MHD_OPTION_END);
    }
    if (h && h->mhd)
        info = library.MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info) {
        if (!h || !h->mhd)
            close(fd);
        if (h && h->mhd)
            library.MHD_stop_daemon(h->mhd);
        free(h);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "metrics: no memory for HTTP");
    }
    ev_io_init(&h->ready, on_ready, info->epoll_fd, EV_READ);
    ev_set_priority(&h->ready, EV_MINPRI);
    ev_init(&h->rest, on_rest);
    h->ready.data = h->rest.data = h;
    ev_io_start(loop, &h->ready);
    *http = h;
    return STATUS_OK;
}

void http_destroy(struct http *h)
{
    if (!h)
        return;
    ev_io_stop(h->loop, &h->ready);
    ev_timer_stop(h->loop, &h->rest);
    library.MHD_stop_daemon(h->mhd);
    free(h);
}
