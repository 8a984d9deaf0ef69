// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/stderr_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/limits.h"

#define READ_BYTES      4096
// Maximum number of bytes per event, so that a rank that writes endlessly does not block the loop.
#define DRAIN_BYTES_MAX (4 * STDERR_RING_BYTES)

static void pipe_end(struct stderr_pipe *p)
{
    if (p->fd < 0)
        return;
    ev_io_stop(p->loop, &p->readable);
    close(p->fd);
    p->fd = -1;
}

// Reads once and reports the bytes. Returns their number; 0: none, or the end.
static size_t pipe_read(struct stderr_pipe *p)
{
    char data[READ_BYTES];
    ssize_t got = p->fd < 0 ? 0 : read(p->fd, data, sizeof(data));
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0) {
        pipe_end(p);
        return 0;
    }
    p->wrote(p->context, data, (size_t)got);
    return (size_t)got;
}

void stderr_pipe_drain(struct stderr_pipe *p)
{
    size_t total = 0, got;
    while (p->loop && total < DRAIN_BYTES_MAX && (got = pipe_read(p)) > 0)
        total += got;
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    pipe_read(watcher->data);
}

enum status stderr_pipe_init(struct stderr_pipe *p, struct ev_loop *loop,
                             void (*wrote)(void *context, const void *data, size_t size),
                             void *context, int *write_end, struct error *error)
{
    int ends[2];
    memset(p, 0, sizeof(*p));
    p->fd = -1;
    p->context = context;
    p->wrote = wrote;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no pipe for the stderr of a rank: %s",
                         strerror(errno));
    p->loop = loop;
    p->fd = ends[0];
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    ev_io_init(&p->readable, on_readable, p->fd, EV_READ);
    p->readable.data = p;
    ev_io_start(loop, &p->readable);
    *write_end = ends[1];
    return STATUS_OK;
}

void stderr_pipe_fini(struct stderr_pipe *p)
{
    if (!p->loop)
        return;
    pipe_end(p);
    p->loop = NULL;
}
