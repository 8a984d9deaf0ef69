// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/acceptor.h"

#include <errno.h>

#include "daemon/net/accept.h"

#define PAUSE_S 0.25

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)events;
    struct acceptor *a = watcher->data;
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(from);
    int fd = accept4(watcher->fd, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        a->handler(a->context, fd, &from, size);
    } else if (errno != EAGAIN && !accept_error_is_theirs()) {
        ev_io_stop(loop, watcher);
        ev_timer_set(&a->again, PAUSE_S, 0.);
        ev_timer_start(loop, &a->again);
    }
}

static void on_again(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)events;
    struct acceptor *a = watcher->data;
    ev_io_start(loop, &a->readable);
}

void acceptor_start(struct acceptor *a, struct ev_loop *loop, int fd, acceptor_handler *handler,
                    void *context)
{
    *a = (struct acceptor){.loop = loop, .handler = handler, .context = context};
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
