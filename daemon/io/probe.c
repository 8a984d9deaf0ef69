// SPDX-License-Identifier: Apache-2.0
#include "daemon/io/probe.h"

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/io/clock.h"

// The greeting of either side: "\0SP\0", protocol number, reserved.
static const uint8_t greeting_of_client[8] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};
static const uint8_t greeting_of_server[8] = {0, 'S', 'P', 0, 0, 0x31, 0, 0};
// A frame: type 1, length, and for a request its number with the top bit set.
#define FRAME_TYPE   1
#define FRAME_HEADER 9
#define REQUEST_ID   UINT32_C(0x80000001)
// What must have come: greeting, frame header, the request's number again.
#define ANSWER_BYTES (sizeof(greeting_of_server) + FRAME_HEADER + sizeof(uint32_t))

static void message_append(struct probe *p, const void *data, size_t size)
{
    memcpy(p->message + p->message_bytes, data, size);
    p->message_bytes += size;
}

static void probe_close(struct probe *p)
{
    ev_io_stop(p->loop, &p->readable);
    ev_timer_stop(p->loop, &p->look);
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

static void probe_end(struct probe *p, enum probe_result result)
{
    probe_close(p);
    p->handler.done(p->handler.context, result);
}

static bool answer_is_right(const struct probe *p)
{
    const uint32_t id = htobe32(REQUEST_ID);
    return memcmp(p->answer, greeting_of_server, sizeof(greeting_of_server)) == 0 &&
           p->answer[sizeof(greeting_of_server)] == FRAME_TYPE &&
           memcmp(p->answer + ANSWER_BYTES - sizeof(id), &id, sizeof(id)) == 0;
}

// True once the probe has ended.
static bool answer_read(struct probe *p)
{
    ssize_t got = recv(p->fd, p->answer + p->answer_bytes, ANSWER_BYTES - p->answer_bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        probe_end(p, PROBE_UNANSWERED);
        return true;
    }
    p->answer_bytes += (size_t)got;
    if (p->answer_bytes < ANSWER_BYTES)
        return false;
    probe_end(p, answer_is_right(p) ? PROBE_SERVED : PROBE_UNANSWERED);
    return true;
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
    (void)loop;
    (void)events;
    answer_read(watcher->data);
}

static bool lost(const struct probe *p)
{
    bool let_in = p->handler.let_in(p->handler.context) != p->let_in_before;
    return !let_in && (p->answer_bytes > 0 || p->looks > 1);
}

// The answer may be there already, when it was the loop that came late.
static void on_look(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct probe *p = watcher->data;
    size_t before;
    do {
        before = p->answer_bytes;
        if (answer_read(p))
            return;
    } while (p->answer_bytes > before);
    p->looks++;
    if (lost(p))
        probe_end(p, PROBE_UNSERVED);
    else if (p->looks == PROBE_LOOKS_MAX)
        probe_end(p, PROBE_UNANSWERED);
}

enum status probe_init(struct probe *p, struct ev_loop *loop, const char *path, const void *request,
                       size_t size, const struct probe_handler *handler, struct error *error)
{
    memset(p, 0, sizeof(*p));
    p->loop = loop;
    p->handler = *handler;
    p->fd = -1;
    if (strlen(path) >= sizeof(p->path) || size > PROBE_MESSAGE_MAX - 32)
        return error_set(error, STATUS_INTERNAL, "the probe of %s does not fit", path);
    strcpy(p->path, path);
    const uint8_t type = FRAME_TYPE;
    const uint64_t length = htobe64(sizeof(uint32_t) + size);
    const uint32_t id = htobe32(REQUEST_ID);
    message_append(p, greeting_of_client, sizeof(greeting_of_client));
    message_append(p, &type, sizeof(type));
    message_append(p, &length, sizeof(length));
    message_append(p, &id, sizeof(id));
    message_append(p, request, size);
    ev_init(&p->readable, on_readable);
    ev_init(&p->look, on_look);
    p->readable.data = p->look.data = p;
    return STATUS_OK;
}

// Greeting and request go out at once: they fit the buffer of a fresh connection, and a server that
// gets the greeting late has no reason to wait for us.
static enum probe_result probe_connect(struct probe *p)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, p->path);
    p->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->fd < 0)
        return PROBE_UNABLE;
    bool connected = connect(p->fd, (struct sockaddr *)&name, sizeof(name)) == 0;
    p->refusals = !connected && errno == EAGAIN ? p->refusals + 1 : 0;
    if (!connected && errno == EAGAIN && p->refusals < PROBE_REFUSALS_MAX)
        return PROBE_UNANSWERED;
    if (!connected)
        return errno == ENOMEM ? PROBE_UNABLE : PROBE_UNSERVED;
    if (send(p->fd, p->message, p->message_bytes, MSG_NOSIGNAL) != (ssize_t)p->message_bytes)
        return PROBE_UNANSWERED;
    return PROBE_SERVED;
}

void probe_start(struct probe *p)
{
    if (p->fd >= 0)
        return;
    p->answer_bytes = 0;
    p->looks = 0;
    p->let_in_before = p->handler.let_in(p->handler.context);
    enum probe_result result = probe_connect(p);
    if (result != PROBE_SERVED) {
        probe_end(p, result);
        return;
    }
    ev_io_set(&p->readable, p->fd, EV_READ);
    ev_io_start(p->loop, &p->readable);
    ev_now_update(p->loop);
    const double interval = (double)PROBE_LOOK_NS / NS_PER_S;
    ev_timer_set(&p->look, interval, interval);
    ev_timer_start(p->loop, &p->look);
}

void probe_fini(struct probe *p)
{
    if (p->loop)
        probe_close(p);
}
