// SPDX-License-Identifier: Apache-2.0
#include "tests/support/raw_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define GREETING_BYTES 8
#define LENGTH_BYTES   8
#define NUMBER_BYTES   4
#define READ_BYTES     65536

static const uint8_t greeting[GREETING_BYTES] = {0, 'S', 'P', 0, 0, 0x30, 0, 0};

// ---- bytes -------------------------------------------------------------------------------------

static void reserve(uint8_t **data, size_t *room, size_t needed)
{
    if (needed <= *room)
        return;
    *room = needed + READ_BYTES;
    *data = realloc(*data, *room);
    if (!*data)
        abort();
}

static void append(struct raw_client *c, const void *data, size_t size)
{
    reserve(&c->out, &c->out_room, c->out_bytes + size);
    memcpy(c->out + c->out_bytes, data, size);
    c->out_bytes += size;
}

bool raw_flush(struct raw_client *c)
{
    while (c->fd >= 0 && c->out_done < c->out_bytes) {
        ssize_t sent = send(c->fd, c->out + c->out_done, c->out_bytes - c->out_done,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (sent < 0)
            return false;
        c->out_done += (size_t)sent;
    }
    c->out_bytes = c->out_done = 0;
    return c->fd >= 0;
}

// Reads without waiting. Returns the number of bytes; -1: end of the connection.
static ssize_t fill(struct raw_client *c)
{
    reserve(&c->in, &c->in_room, c->in_bytes + READ_BYTES);
    ssize_t got = recv(c->fd, c->in + c->in_bytes, READ_BYTES, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (got <= 0)
        return -1;
    c->in_bytes += (size_t)got;
    return got;
}

static void take(struct raw_client *c, size_t bytes)
{
    c->in_bytes -= bytes;
    memmove(c->in, c->in + bytes, c->in_bytes);
}

static uint64_t number_read(const uint8_t *bytes, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

static void number_write(uint8_t *bytes, int count, uint64_t value)
{
    for (int i = 0; i < count; i++)
        bytes[i] = (uint8_t)(value >> (8 * (count - 1 - i)));
}

// ---- life --------------------------------------------------------------------------------------

static bool raw_connect(struct raw_client *c, int family, const void *name, socklen_t size)
{
    memset(c, 0, sizeof(*c));
    c->lead = family == AF_UNIX;
    c->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, name, size) != 0) {
        int error = errno;
        raw_close(c);
        errno = error;
        return false;
    }
    append(c, greeting, sizeof(greeting));
    return true;
}

bool raw_open(struct raw_client *c, const char *socket_path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%s", socket_path);
    return raw_connect(c, AF_UNIX, &name, sizeof(name));
}

bool raw_open_tcp(struct raw_client *c, int port)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return raw_connect(c, AF_INET, &name, sizeof(name));
}

void raw_close(struct raw_client *c)
{
    if (c->fd > 0)
        close(c->fd);
    free(c->in);
    free(c->out);
    memset(c, 0, sizeof(*c));
    c->fd = -1;
}

// ---- requests and replies ----------------------------------------------------------------------

void raw_send(struct raw_client *c, uint32_t number, const struct wire_request *request)
{
    struct error error;
    uint8_t head[1 + LENGTH_BYTES + NUMBER_BYTES] = {1};
    void *data;
    size_t size;
    if (wire_encode_request(request, &data, &size, &error) != STATUS_OK)
        abort();
    number_write(head + 1, LENGTH_BYTES, size + NUMBER_BYTES);
    number_write(head + 1 + LENGTH_BYTES, NUMBER_BYTES, number | UINT32_C(0x80000000));
    append(c, head + 1 - c->lead, sizeof(head) - 1 + c->lead);
    append(c, data, size);
    free(data);
    raw_flush(c);
}

void raw_send_run(struct raw_client *c, uint32_t number, const struct cp_case *run, int timeout_ms)
{
    static struct wire_request request;
    memset(&request, 0, sizeof(request));
    request.version = WIRE_VERSION;
    request.method = METHOD_RUN;
    request.timeout_ns = (uint64_t)timeout_ms * 1000000;
    memcpy(request.id.bytes, &number, sizeof(number));
    request.id.bytes[15] = 1;
    request.run = *run;
    raw_send(c, number, &request);
}

void raw_send_status(struct raw_client *c, uint32_t number)
{
    struct wire_request request = {.version = WIRE_VERSION, .method = METHOD_STATUS};
    memcpy(request.id.bytes, &number, sizeof(number));
    raw_send(c, number, &request);
}

// The next buffered reply, without reading.
static enum raw_input parse(struct raw_client *c, uint32_t *number, struct wire_reply *reply)
{
    struct error error;
    if (!c->greeted && c->in_bytes >= GREETING_BYTES) {
        c->greeted = true;
        take(c, GREETING_BYTES);
    }
    size_t head = c->lead + LENGTH_BYTES;
    if (!c->greeted || c->in_bytes < head)
        return RAW_NOTHING;
    uint64_t length = number_read(c->in + c->lead, LENGTH_BYTES);
    if ((c->lead && c->in[0] != 1) || length < NUMBER_BYTES ||
        length > REPLY_BYTES_MAX + NUMBER_BYTES)
        return RAW_GONE;
    if (c->in_bytes < head + length)
        return RAW_NOTHING;
    *number = (uint32_t)number_read(c->in + head, NUMBER_BYTES) & INT32_MAX;
    enum status status = wire_decode_reply(c->in + head + NUMBER_BYTES,
                                           (size_t)length - NUMBER_BYTES, reply, &error);
    take(c, head + (size_t)length);
    return status == STATUS_OK ? RAW_REPLY : RAW_GONE;
}

enum raw_input raw_next(struct raw_client *c, uint32_t *number, struct wire_reply *reply)
{
    for (;;) {
        enum raw_input input = c->fd < 0 ? RAW_GONE : parse(c, number, reply);
        if (input != RAW_NOTHING)
            return input;
        ssize_t got = fill(c);
        if (got == 0)
            return RAW_NOTHING;
        if (got < 0)
            return RAW_GONE;
    }
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

enum raw_input raw_wait(struct raw_client *c, int timeout_ms, uint32_t *number,
                        struct wire_reply *reply)
{
    int64_t end_ms = now_ms() + timeout_ms;
    for (;;) {
        enum raw_input input = raw_flush(c) ? raw_next(c, number, reply) : RAW_GONE;
        int64_t left_ms = end_ms - now_ms();
        if (input != RAW_NOTHING || left_ms < 0)
            return input;
        struct pollfd poll_fd = {.fd = c->fd, .events = POLLIN};
        if (c->out_bytes > c->out_done)
            poll_fd.events |= POLLOUT;
        poll(&poll_fd, 1, (int)left_ms + 1);
    }
}
