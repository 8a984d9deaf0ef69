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

#define TICK_S         .5
#define BEAT_TICKS     2 // ticks from one BEAT to the next
// If a tick is this late, the time of silence is counted anew: the loop itself was delayed, and
// bytes may have arrived meanwhile.
#define TICK_LATE_NS   NS_PER_S
#define FINISH_TICKS   2 // time limit of node_link_finish()
// Maximum number of encrypted bytes read in a round of the loop.
#define TLS_READ_BYTES (64 * 1024)

struct node_link {
    struct ev_loop *loop;
    struct node_link_handler handler;
    int fd;
    ev_io readable, writable;
    ev_timer tick, ending;
    unsigned ticks;
    uint64_t ticked_ns, heard_ns; // last tick; last received bytes
    bool broken;                  // `ended` will be called, or was
    int finishing;                // remaining ticks for writing; 0: not finishing
    struct error error;
    struct tls_session *tls; // NULL: not encrypted
    bool secured;            // the handshake is over
    size_t tls_left;         // encrypted bytes that may still be read in this round
    size_t early_size;
    uint8_t early[LINK_EARLY_MAX]; // messages that wait for the handshake
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
    tls_session_destroy(l->tls);
    close(l->fd);
    free(l->out);
    free(l);
}

// ---- output ------------------------------------------------------------------------------------

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

static bool early_keep(struct node_link *l, const void *data, size_t size)
{
    if (size > LINK_EARLY_MAX - l->early_size)
        return false;
    if (size > 0)
        memcpy(l->early + l->early_size, data, size);
    l->early_size += size;
    return true;
}

static bool part_take(struct node_link *l, const void *data, size_t size)
{
    if (l->tls)
        return l->secured ? tls_session_write(l->tls, data, size) : early_keep(l, data, size);
    if (!out_reserve(l, size))
        return false;
    out_add(l, data, size);
    return true;
}

void node_link_send(struct node_link *l, enum node_message type, const void *body, size_t size,
                    const void *more, size_t more_size)
{
    const struct node_header header = {.length = (uint32_t)(size + more_size), .type = type};
    if (l->broken || l->finishing > 0)
        return;
    if (!part_take(l, &header, sizeof(header)) || !part_take(l, body, size) ||
        !part_take(l, more, more_size)) {
        end_for(l, "the other end does not read, or memory is short", 0);
        return;
    }
    flush(l);
}

// ---- TLS ---------------------------------------------------------------------------------------

static ssize_t pipe_read(void *context, void *data, size_t size)
{
    struct node_link *l = context;
    if (l->tls_left == 0) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t got = recv(l->fd, data, size < l->tls_left ? size : l->tls_left, MSG_DONTWAIT);
    l->tls_left -= got > 0 ? (size_t)got : 0;
    return got;
}

static bool pipe_write(void *context, const void *data, size_t size)
{
    struct node_link *l = context;
    if (l->broken || !out_reserve(l, size))
        return false;
    out_add(l, data, size);
    return true;
}

// Ends the link if TLS has ended or failed; first sends the last message of TLS.
static void tls_judge(struct node_link *l, enum tls_result result, const char *fault)
{
    struct error error;
    if (result == TLS_DONE || result == TLS_NOTHING)
        return;
    flush(l);
    error_set(&error, STATUS_UNAVAILABLE, "%s%s",
              result == TLS_BROKEN ? "" : "the connection was closed",
              result == TLS_BROKEN ? fault
              : l->secured         ? ""
                                   : " during the handshake of TLS");
    node_link_end(l, &error);
}

// Continues the handshake; after it sends the messages that wait. False: more bytes are needed, or
// the link has ended.
static bool shake(struct node_link *l)
{
    const char *fault = "";
    if (l->secured)
        return true;
    enum tls_result result = tls_session_shake(l->tls, &fault);
    tls_judge(l, result, fault);
    l->secured = result == TLS_DONE;
    if (l->secured && !tls_session_write(l->tls, l->early, l->early_size))
        end_for(l, "memory is short", 0);
    if (l->secured)
        explicit_bzero(l->early, sizeof(l->early));
    flush(l);
    return l->secured && !l->broken;
}

// ---- input -------------------------------------------------------------------------------------

// Handles one received message; false: none is complete, or the link has ended or is ending.
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

static void in_make_room(struct node_link *l)
{
    memmove(l->in, l->in + l->in_begin, l->in_end - l->in_begin);
    l->in_end -= l->in_begin;
    l->in_begin = 0;
}

static void in_take(struct node_link *l, size_t got)
{
    l->heard_ns = clock_now_ns();
    l->in_end += got;
    while (message_take(l))
        ;
}

static void plain_read(struct node_link *l)
{
    in_make_room(l);
    ssize_t got = recv(l->fd, l->in + l->in_end, sizeof(l->in) - l->in_end, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        end_for(l, got == 0 ? "the connection was closed" : "the connection broke",
                got == 0 ? 0 : errno);
    else
        in_take(l, (size_t)got);
}

// Reads until the TLS session holds no decrypted bytes, because no event reports them.
static void tls_read(struct node_link *l)
{
    const char *fault = "";
    l->tls_left = TLS_READ_BYTES;
    if (!shake(l))
        return;
    enum tls_result result = TLS_DONE;
    while (result == TLS_DONE && !l->broken && l->finishing == 0) {
        size_t got = 0;
        in_make_room(l);
        result =
            tls_session_read(l->tls, l->in + l->in_end, sizeof(l->in) - l->in_end, &got, &fault);
        if (result == TLS_DONE)
            in_take(l, got);
    }
    tls_judge(l, result, fault);
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    struct node_link *l = watcher->data;
    if (l->tls)
        tls_read(l);
    else
        plain_read(l);
}

// ---- time --------------------------------------------------------------------------------------

static void on_tick(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct node_link *l = watcher->data;
    uint64_t now_ns = clock_now_ns();
    if (now_ns - l->ticked_ns > TICK_LATE_NS)
        l->heard_ns = now_ns; // bytes that arrived meanwhile are read later in this round
    l->ticked_ns = now_ns;
    if (l->finishing > 0 && --l->finishing == 0) {
        node_link_end(l, &l->error);
        return;
    }
    if (now_ns - l->heard_ns > LINK_SILENT_NS) {
        end_for(l, "nothing was heard for 3 s", 0);
        return;
    }
    if (l->ticks++ % BEAT_TICKS == 0 && (!l->tls || l->secured))
        node_link_send(l, NODE_BEAT, NULL, 0, NULL, 0);
}

static bool tls_begin(struct node_link *l, struct tls *tls, const char *host)
{
    const struct tls_pipe pipe = {l, pipe_read, pipe_write};
    l->tls = host ? tls_session_connect(tls, &pipe, host) : tls_session_create(tls, &pipe);
    return l->tls != NULL;
}

struct node_link *node_link_create(struct ev_loop *loop, int fd,
                                   const struct node_link_handler *handler, struct tls *tls,
                                   const char *host)
{
    struct node_link *l = calloc(1, sizeof(*l));
    const int on = 1;
    if (!l || (tls && !tls_begin(l, tls, host))) {
        free(l);
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
    if (l->tls && host)
        shake(l);
    return l;
}
