// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/stderr_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/limits.h"
#include "common/log.h"

#define READ_BYTES      4096
// At most this much in one go: a rank that writes without end must not hold the loop.
#define DRAIN_BYTES_MAX (4 * STDERR_RING_BYTES)

static void suppressed_tell(struct stderr_pipe *p)
{
    if (p->suppressed_bytes > 0)
        log_info("rank_stderr_suppressed rank=%d world=%d generation=%u bytes=%zu", p->rank,
                 p->world_size, p->generation, p->suppressed_bytes);
    p->suppressed_bytes = 0;
}

static void line_pass_on(struct stderr_pipe *p)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns - p->second_ns >= NS_PER_S) {
        suppressed_tell(p);
        p->second_ns = now_ns;
        p->logged_bytes = 0;
    }
    if (p->logged_bytes + p->line_bytes > STDERR_LOG_BYTES_PER_S) {
        p->suppressed_bytes += p->line_bytes;
    } else if (p->line_bytes > 0) {
        p->line[p->line_bytes] = '\0';
        p->logged_bytes += p->line_bytes;
        log_info("rank_stderr rank=%d world=%d generation=%u text=%s", p->rank, p->world_size,
                 p->generation, log_quote(&(struct log_quoted){0}, p->line));
    }
    p->line_bytes = 0;
}

static void lines_collect(struct stderr_pipe *p, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] == '\n' || p->line_bytes == sizeof(p->line) - 1)
            line_pass_on(p);
        if (data[i] != '\n' && data[i] != '\0')
            p->line[p->line_bytes++] = data[i];
    }
}

static void pipe_end(struct stderr_pipe *p)
{
    if (p->fd < 0)
        return;
    ev_io_stop(p->loop, &p->readable);
    close(p->fd);
    p->fd = -1;
}

// Bytes read; 0 when there is nothing, or nothing any more.
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
    bytering_write(&p->ring, data, (size_t)got);
    lines_collect(p, data, (size_t)got);
    return (size_t)got;
}

void stderr_pipe_drain(struct stderr_pipe *p)
{
    size_t total = 0, got;
    while (total < DRAIN_BYTES_MAX && (got = pipe_read(p)) > 0)
        total += got;
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    pipe_read(watcher->data);
}

enum status stderr_pipe_init(struct stderr_pipe *p, struct ev_loop *loop, int rank, int world_size,
                             uint32_t generation, int *write_end, struct error *error)
{
    int ends[2];
    memset(p, 0, sizeof(*p));
    p->loop = loop;
    p->fd = -1;
    p->rank = rank;
    p->world_size = world_size;
    p->generation = generation;
    if (bytering_init(&p->ring, STDERR_RING_BYTES) != STATUS_OK)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the stderr of rank %d",
                         rank);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no pipe for the stderr of rank %d: %s",
                         rank, strerror(errno));
    p->fd = ends[0];
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    ev_io_init(&p->readable, on_readable, p->fd, EV_READ);
    p->readable.data = p;
    ev_io_start(loop, &p->readable);
    *write_end = ends[1];
    return STATUS_OK;
}

void stderr_pipe_close(struct stderr_pipe *p)
{
    stderr_pipe_drain(p);
    pipe_end(p);
    line_pass_on(p);
    suppressed_tell(p);
}

void stderr_pipe_fini(struct stderr_pipe *p)
{
    if (!p->loop)
        return;
    pipe_end(p);
    bytering_fini(&p->ring);
    p->loop = NULL;
}
