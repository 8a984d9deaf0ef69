// SPDX-License-Identifier: Apache-2.0
#include "daemon/nodes/node_link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"

#define TICK_S       .5
#define BEAT_TICKS   2
// A loop that was held up this long has not listened either.
#define TICK_LATE_NS NS_PER_S
#define FINISH_TICKS 2

struct node_link {
    struct ev_loop *loop;
    struct node_link_handler handler;
    int fd;
    ev_io readable, writable;
    ev_timer tick, ending;
    unsigned ticks;
    uint64_t ticked_ns, heard_ns;
    bool broken;   // `ended` is about to be called
    int finishing; // ticks left; 0: it is not
    struct error error;
    uint8_t *out;
    size_t out_begin, out_end, out_room;
    size_t in_begin, in_end;
    _Alignas(16) uint8_t in[2 * NODE_SIZE_MAX];
    _Alignas(16) uint8_t body[NODE_BODY_MAX];
};

int node_link_fd(const struct node_link *l)
{
    return l->fd;
}

bool node_link_is_full(const struct node_link *l)
{
    return l->out_end - l->out_begin > LINK_OUT_FULL;
}

// ---- the end -----------------------------------------------------------------------------------

void node_link_end(struct node_link *l, const struct error *error)
{
    if (l->broken)
        return;
    l->broken = true;
    l->error = *error;
    ev_io_stop(l->loop, &l->readable);
    ev_io_stop(l->loop, &l->writable);
    ev_timer_stop(l->loop, &l->tick);
    ev_timer_start(l->loop, &l->ending);
}

static void end_for(struct node_link *l, const char *what, int number)
{
    struct error error;
    error_set(&error, STATUS_UNAVAILABLE, "%s%s%s", what, number ? ": " : "",
              number ? strerror(number) : "");
    node_link_end(l, &error);
}

static void on_ending(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct node_link *l = watcher->data;
    l->handler.ended(l->handler.context, l, &l->error);
}

void node_link_finish(struct node_link *l, const struct error *error)
{
    if (l->broken)
        return;
    if (l->out_begin == l->out_end) {
        node_link_end(l, error);
        return;
    }
    l->error = *error;
    l->finishing = FINISH_TICKS;
    ev_io_stop(l->loop, &l->readable);
}

void node_link_destroy(struct node_link *l)
{
    if (!l)
        return;
    ev_io_stop(l->loop, &l->readable);
    ev_io_stop(l->loop, &l->writable);
    ev_timer_stop(l->loop, &l->tick);
    ev_timer_stop(l->loop, &l->ending);
    close(l->fd);
    free(l->out);
    free(l);
}

// ---- out ---------------------------------------------------------------------------------------

static void flush(struct node_link *l)
{
    while (!l->broken && l->out_begin < l->out_end) {
        ssize_t sent = send(l->fd, l->out + l->out_begin, l->out_end - l->out_begin,
                            MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN) {
            ev_io_start(l->loop, &l->writable);
            return;
        }
        if (sent < 0) {
            end_for(l, "the connection broke", errno);
            return;
        }
        l->out_begin += (size_t)sent;
    }
    if (l->broken)
        return;
    l->out_begin = l->out_end = 0;
    ev_io_stop(l->loop, &l->writable);
    if (l->finishing > 0)
        node_link_end(l, &l->error);
}

static void on_writable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    flush(watcher->data);
}

static bool out_reserve(struct node_link *l, size_t size)
{
    size_t kept = l->out_end - l->out_begin;
    if (kept + size > LINK_OUT_MAX)
        return false;
    if (l->out_end + size <= l->out_room)
        return true;
    if (l->out_begin > 0)
        memmove(l->out, l->out + l->out_begin, kept);
    l->out_begin = 0;
    l->out_end = kept;
    if (kept + size <= l->out_room)
        return true;
    size_t room = 2 * (kept + size);
    uint8_t *out = realloc(l->out, room);
    if (!out)
        return false;
    l->out = out;
    l->out_room = room;
    return true;
}

static void out_add(struct node_link *l, const void *data, size_t size)
{
    if (size > 0)
        memcpy(l->out + l->out_end, data, size);
    l->out_end += size;
}

void node_link_send(struct node_link *l, enum node_message type, const void *body, size_t size,
                    const void *more, size_t more_size)
{
    const struct node_header header = {.length = (uint32_t)(size + more_size), .type = type};
    if (l->broken || l->finishing > 0)
        return;
    if (!out_reserve(l, sizeof(header) + size + more_size)) {
        end_for(l, "the other end does not read, or memory is short", 0);
        return;
    }
    out_add(l, &header, sizeof(header));
    out_add(l, body, size);
    out_add(l, more, more_size);
    flush(l);
}

// ---- in ----------------------------------------------------------------------------------------

// Takes one message; false when there is no whole one.
static bool message_take(struct node_link *l)
{
    struct node_header header;
    struct error error;
    size_t there = l->in_end - l->in_begin;
    if (l->broken || l->finishing > 0 || there < sizeof(header))
        return false;
    memcpy(&header, l->in + l->in_begin, sizeof(header));
    enum status status = node_header_check(&header, &error);
    if (status == STATUS_OK && there < sizeof(header) + header.length)
        return false;
    if (status == STATUS_OK) {
        memcpy(l->body, l->in + l->in_begin + sizeof(header), header.length);
        l->in_begin += sizeof(header) + header.length;
    }
    if (status == STATUS_OK && header.type != NODE_BEAT)
        status = l->handler.message(l->handler.context, l, (enum node_message)header.type, l->body,
                                    header.length, &error);
    if (status != STATUS_OK && l->finishing == 0)
        node_link_end(l, &error);
    return status == STATUS_OK;
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    struct node_link *l = watcher->data;
    memmove(l->in, l->in + l->in_begin, l->in_end - l->in_begin);
    l->in_end -= l->in_begin;
    l->in_begin = 0;
    ssize_t got = recv(l->fd, l->in + l->in_end, sizeof(l->in) - l->in_end, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        end_for(l, got == 0 ? "the connection was closed" : "the connection broke",
                got == 0 ? 0 : errno);
        return;
    }
    l->heard_ns = clock_now_ns();
    l->in_end += (size_t)got;
    while (message_take(l))
        ;
}

// ---- time --------------------------------------------------------------------------------------

static void on_tick(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct node_link *l = watcher->data;
    uint64_t now_ns = clock_now_ns();
    if (now_ns - l->ticked_ns > TICK_LATE_NS)
        l->heard_ns = now_ns; // what has come meanwhile is read after this
    l->ticked_ns = now_ns;
    if (l->finishing > 0 && --l->finishing == 0) {
        node_link_end(l, &l->error);
        return;
    }
    if (now_ns - l->heard_ns > LINK_SILENT_NS) {
        end_for(l, "nothing was heard for 3 s", 0);
        return;
    }
    if (l->ticks++ % BEAT_TICKS == 0)
        node_link_send(l, NODE_BEAT, NULL, 0, NULL, 0);
}

struct node_link *node_link_create(struct ev_loop *loop, int fd,
                                   const struct node_link_handler *handler)
{
    struct node_link *l = calloc(1, sizeof(*l));
    const int on = 1;
    if (!l) {
        close(fd);
        return NULL;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    l->loop = loop;
    l->handler = *handler;
    l->fd = fd;
    l->ticked_ns = l->heard_ns = clock_now_ns();
    ev_io_init(&l->readable, on_readable, fd, EV_READ);
    ev_io_init(&l->writable, on_writable, fd, EV_WRITE);
    ev_timer_init(&l->tick, on_tick, 0., TICK_S);
    ev_timer_init(&l->ending, on_ending, 0., 0.);
    l->readable.data = l->writable.data = l->tick.data = l->ending.data = l;
    ev_io_start(loop, &l->readable);
    ev_timer_start(loop, &l->tick);
    return l;
}
