// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/connection.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/clock.h"

// Initial size of the receive buffer: room for some dozens of small requests.
#define READ_BYTES     4096
// Upper bound of the encrypted bytes read in a turn: two TLS records of the largest size.
#define TLS_READ_BYTES (34 * 1024)
// Upper bound of the reads that discard unread bytes when a socket is closed.
#define DISCARD_READS  64

struct output {
    struct list link;
    size_t size, sent;
    uint8_t data[];
};

// ---- input -------------------------------------------------------------------------------------

// Wipes the bytes, which may contain a token.
static void input_wipe(struct connection *c)
{
    if (c->in)
        explicit_bzero(c->in, c->in_end);
}

// Makes room for at least one more byte; false: memory is short. The buffer never needs more than
// FRAME_BYTES_MAX, because an incomplete frame is shorter.
static bool input_grow(struct connection *c)
{
    size_t here = c->in_end - c->in_begin;
    if (c->in_begin > 0) {
        memmove(c->in, c->in + c->in_begin, here);
        explicit_bzero(c->in + here, c->in_begin);
        c->in_begin = 0;
        c->in_end = here;
    }
    if (here < c->in_room)
        return true;
    size_t room = c->in_room ? c->in_room * 2 : READ_BYTES;
    if (room > FRAME_BYTES_MAX)
        room = FRAME_BYTES_MAX;
    uint8_t *in = malloc(room); // realloc() could leave an unwiped copy
    if (!in)
        return false;
    if (here > 0)
        memcpy(in, c->in, here);
    input_wipe(c);
    free(c->in);
    c->in = in;
    c->in_room = room;
    return true;
}

static void input_free(struct connection *c)
{
    input_wipe(c);
    free(c->in);
    c->in = NULL;
    c->in_begin = c->in_end = c->in_room = c->in_taken = 0;
}

static void input_consume(struct connection *c, size_t bytes)
{
    c->in_begin += bytes;
    c->in_taken = bytes;
    c->in_ns = clock_now_ns();
}

// Reads plain bytes, through TLS if the connection has it. Returns their number, 0 if there are
// none; then `ended` or `fault` may be set.
static size_t bytes_take(struct connection *c, void *data, size_t size)
{
    size_t plain = 0;
    if (c->tls) {
        c->ended |= tls_session_read(c->tls, data, size, &plain, &c->fault) == TLS_ENDED;
        return plain;
    }
    ssize_t got = recv(c->fd, data, size, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        c->ended = true;
    c->drained = got > 0 && (size_t)got < size;
    return got > 0 ? (size_t)got : 0;
}

// Reads once into the buffer; false if nothing was read. Frees an empty buffer.
static bool input_read(struct connection *c)
{
    if (!input_grow(c)) {
        c->fault = "memory is short for its request";
        return false;
    }
    bool empty = c->in_end == c->in_begin;
    size_t got = bytes_take(c, c->in + c->in_end, c->in_room - c->in_end);
    if (got > 0) {
        c->in_end += got;
        if (empty && c->greeted)
            c->in_ns = clock_now_ns();
        return true;
    }
    if (empty)
        input_free(c);
    return false;
}

// Parses the greeting if it is still missing, then a frame, from the buffered bytes.
static enum frame_result input_parse(struct connection *c, struct frame *frame)
{
    enum frame_result result;
    if (!c->greeted) {
        result = frame_greeting_read(c->in + c->in_begin, c->in_end - c->in_begin, &c->fault);
        if (result != FRAME_WHOLE)
            return result;
        c->greeted = true;
        input_consume(c, FRAME_GREETING_BYTES);
    }
    result = frame_read(c->framing, c->in + c->in_begin, c->in_end - c->in_begin, frame, &c->fault);
    if (result == FRAME_WHOLE)
        input_consume(c, frame->bytes);
    return result;
}

// Wipes the frame that was returned last.
static void taken_wipe(struct connection *c)
{
    if (c->in)
        explicit_bzero(c->in + c->in_begin - c->in_taken, c->in_taken);
    c->in_taken = 0;
}

static enum connection_input input_next(struct connection *c, struct frame *frame)
{
    bool read = false;
    taken_wipe(c);
    for (;;) {
        enum frame_result result = c->in_end > c->in_begin ? input_parse(c, frame) : FRAME_PARTIAL;
        if (result == FRAME_WHOLE)
            return CONNECTION_FRAME;
        if (result == FRAME_BROKEN || c->ended)
            return CONNECTION_OVER;
        if (c->in_end == c->in_begin)
            input_free(c);
        if ((read || c->drained) && !(c->tls && tls_session_has_more(c->tls))) {
            c->drained = false;
            return CONNECTION_NOTHING;
        }
        if (!input_read(c))
            return c->ended || c->fault ? CONNECTION_OVER : CONNECTION_NOTHING;
        read = true;
    }
}

// ---- output ------------------------------------------------------------------------------------

static void output_drop(struct connection *c, struct output *output)
{
    size_t bytes = sizeof(*output) + output->size;
    list_remove(&output->link);
    c->out_bytes -= bytes;
    *c->out_total -= bytes;
    free(output);
}

void connection_break(struct connection *c)
{
    LIST_FOREACH (node, &c->out)
        output_drop(c, LIST_ENTRY(node, struct output, link));
    ev_io_stop(c->loop, &c->writable);
    c->broken = true;
}

// Writes as much as the socket takes now; an error breaks the connection.
static size_t bytes_send(struct connection *c, struct iovec *parts, size_t count)
{
    const struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
        return (size_t)sent;
    if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENOMEM)
        connection_break(c);
    return 0;
}

// Stores the bytes of the parts for a later write, without the first `skip` bytes.
static void output_keep(struct connection *c, const struct iovec *parts, int count, size_t skip)
{
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += parts[i].iov_len;
    struct output *output = malloc(sizeof(*output) + size - skip);
    if (!output) {
        connection_break(c);
        c->fault = "memory is short for its reply";
        return;
    }
    *output = (struct output){.size = size - skip};
    for (size_t i = 0, at = 0; i < (size_t)count; i++) {
        size_t out = skip < parts[i].iov_len ? skip : parts[i].iov_len;
        memcpy(output->data + at, (const uint8_t *)parts[i].iov_base + out, parts[i].iov_len - out);
        at += parts[i].iov_len - out;
        skip -= out;
    }
    if (list_empty(&c->out))
        c->out_ns = clock_now_ns();
    list_init(&output->link);
    list_push_back(&c->out, &output->link);
    c->out_bytes += sizeof(*output) + output->size;
    *c->out_total += sizeof(*output) + output->size;
    ev_io_start(c->loop, &c->writable);
}

// Sends bytes as they are, without TLS; stores the rest that the socket does not take.
static void bytes_put(struct connection *c, struct iovec *parts, int count)
{
    size_t size = 0, sent = 0;
    for (int i = 0; i < count; i++)
        size += parts[i].iov_len;
    if (!c->broken && list_empty(&c->out))
        sent = bytes_send(c, parts, (size_t)count);
    if (!c->broken && sent < size)
        output_keep(c, parts, count, sent);
}

void connection_send(struct connection *c, const uint8_t *header, size_t header_bytes,
                     const void *data, size_t size)
{
    uint8_t head[FRAME_LEAD_MAX + FRAME_HEADER_MAX];
    size_t lead_bytes = frame_lead_write(c->framing, head, header_bytes + size);
    memcpy(head + lead_bytes, header, header_bytes);
    struct iovec parts[] = {{head, lead_bytes + header_bytes}, {(void *)(uintptr_t)data, size}};
    if (!c->tls)
        bytes_put(c, parts, 2);
    else if (!c->broken && !(tls_session_write(c->tls, parts[0].iov_base, parts[0].iov_len) &&
                             tls_session_write(c->tls, data, size)))
        connection_break(c);
}

void connection_flush(struct connection *c)
{
    LIST_FOREACH (node, &c->out) {
        struct output *output = LIST_ENTRY(node, struct output, link);
        struct iovec rest = {output->data + output->sent, output->size - output->sent};
        size_t sent = bytes_send(c, &rest, 1);
        if (c->broken)
            return;
        output->sent += sent;
        if (output->sent < output->size)
            return;
        output_drop(c, output);
        c->out_ns = clock_now_ns();
    }
    ev_io_stop(c->loop, &c->writable);
}

// ---- TLS ---------------------------------------------------------------------------------------

// Reads encrypted bytes for TLS, at most tls_left in this turn. The bound is needed because TLS
// continues to read while messages without application data arrive.
static ssize_t pipe_read(void *context, void *data, size_t size)
{
    struct connection *c = context;
    if (c->tls_left == 0) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t got = recv(c->fd, data, size < c->tls_left ? size : c->tls_left, MSG_DONTWAIT);
    c->tls_left -= got > 0 ? (size_t)got : 0;
    return got;
}

static bool pipe_write(void *context, const void *data, size_t size)
{
    struct connection *c = context;
    struct iovec part = {(void *)(uintptr_t)data, size};
    bytes_put(c, &part, 1);
    return !c->broken;
}

static void greet(struct connection *c)
{
    struct iovec greeting = {(void *)(uintptr_t)frame_greeting, FRAME_GREETING_BYTES};
    if (c->tls)
        tls_session_write(c->tls, frame_greeting, FRAME_GREETING_BYTES);
    else if (bytes_send(c, &greeting, 1) != FRAME_GREETING_BYTES && !c->broken)
        c->fault = "it has not taken the greeting";
}

// Continues the handshake and greets the client after it. False: the handshake is not over, or has
// failed.
static bool secure(struct connection *c)
{
    enum tls_result result = c->secured ? TLS_DONE : tls_session_shake(c->tls, &c->fault);
    if (result == TLS_ENDED) {
        c->ended = true;
        if (!c->fault)
            c->fault = "it has gone away in the middle of the TLS handshake";
    }
    if (result != TLS_DONE || c->secured)
        return c->secured;
    if (!tls_session_subject(c->tls, c->peer.subject, sizeof(c->peer.subject))) {
        c->fault = "the subject of its certificate is too long";
        return false;
    }
    c->secured = true;
    greet(c);
    return true;
}

enum connection_input connection_next(struct connection *c, struct frame *frame)
{
    c->tls_left = TLS_READ_BYTES;
    if (secure(c))
        return input_next(c, frame);
    return c->ended || c->fault ? CONNECTION_OVER : CONNECTION_NOTHING;
}

// ---- life --------------------------------------------------------------------------------------

// Over TCP a peer that only stops sending counts as gone, too: the kernel reports both alike.
bool connection_hung_up(const struct connection *c)
{
    struct pollfd poll_fd = {.fd = c->fd};
    if (c->framing == FRAMING_TCP)
        poll_fd.events = POLLRDHUP;
    return poll(&poll_fd, 1, 0) > 0;
}

const char *connection_overdue(const struct connection *c, uint64_t now_ns, uint64_t limit_ns)
{
    if (!list_empty(&c->out) && now_ns > c->out_ns + limit_ns / 2)
        return "it does not read its replies";
    if (c->paused || now_ns <= c->in_ns + limit_ns)
        return NULL;
    if (!c->greeted)
        return "it has not greeted in time";
    return c->in_end > c->in_begin ? "its request was not complete in time" : NULL;
}

struct connection *connection_create(struct ev_loop *loop, int fd, enum framing framing,
                                     struct tls *tls, size_t *out_total)
{
    struct connection *c = calloc(1, sizeof(*c));
    if (!c) {
        close(fd);
        return NULL;
    }
    c->loop = loop;
    c->fd = fd;
    c->framing = framing;
    c->out_total = out_total;
    c->in_ns = clock_now_ns();
    c->secured = !tls;
    list_init(&c->out);
    list_init(&c->all);
    list_init(&c->turn);
    list_init(&c->shake);
    list_init(&c->exchanges);
    if (!tls)
        greet(c);
    else if (!(c->tls = tls_session_create(tls, &(struct tls_pipe){c, pipe_read, pipe_write}))) {
        connection_destroy(c);
        return NULL;
    }
    return c;
}

// Discards received bytes before the close: closing a TCP socket with unread bytes resets the
// connection, and the client may lose a reply that it has not read yet.
static void unread_discard(struct connection *c)
{
    uint8_t bytes[READ_BYTES];
    shutdown(c->fd, SHUT_WR);
    for (int i = 0; i < DISCARD_READS && recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0; i++)
        continue;
}

void connection_destroy(struct connection *c)
{
    if (!c)
        return;
    connection_break(c);
    ev_io_stop(c->loop, &c->readable);
    list_remove(&c->all);
    list_remove(&c->turn);
    list_remove(&c->shake);
    input_free(c);
    tls_session_destroy(c->tls);
    if (c->framing == FRAMING_TCP)
        unread_discard(c);
    close(c->fd);
    free(c);
}
