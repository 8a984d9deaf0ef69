// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/acceptor.h"

#include <errno.h>
#include <string.h>

#include "common/log.h"
#include "daemon/net/accept.h"

#define PAUSE_S 0.25

static void pause_begin(struct acceptor *a)
{
    if (!a->refused)
        log_warning("accept port=%s error=%s", a->port,
                    log_quote(&(struct log_quoted){0}, strerror(errno)));
    a->refused = true;
    ev_io_stop(a->loop, &a->readable);
    ev_timer_set(&a->again, PAUSE_S, 0.);
    ev_timer_start(a->loop, &a->again);
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    struct acceptor *a = watcher->data;
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(from);
    int fd = accept4(watcher->fd, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        a->refused = false;
        a->handler(a->context, fd, &from, size);
    } else if (errno != EAGAIN && !accept_error_is_theirs()) {
        pause_begin(a);
    }
}

static void on_again(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)events;
    struct acceptor *a = watcher->data;
    ev_io_start(loop, &a->readable);
}

void acceptor_start(struct acceptor *a, struct ev_loop *loop, const char *port, int fd,
                    acceptor_handler *handler, void *context)
{
    *a = (struct acceptor){.loop = loop, .port = port, .handler = handler, .context = context};
    ev_io_init(&a->readable, on_readable, fd, EV_READ);
    ev_init(&a->again, on_again);
    a->readable.data = a->again.data = a;
    ev_io_start(loop, &a->readable);
}

void acceptor_stop(struct acceptor *a)
{
    if (!a->loop)
        return;
    ev_io_stop(a->loop, &a->readable);
    ev_timer_stop(a->loop, &a->again);
}
