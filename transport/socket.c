// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/limits.h"
#include "transport/transport.h"

// Socket buffer per direction. With the default of 208 KiB, ranks that compute between two polls
// wait for each other much more often.
#define SOCKET_BUFFER_BYTES (4 * 1024 * 1024)

// Maximum number of messages with one peer per system call, each with a header and a body.
#define BATCH_PARTS 8

// Precedes each message.
struct header {
    uint64_t tag, bytes;
};

// One direction of one message.
struct part {
    struct header header; // to send, or the received bytes of it
    char *data;
    uint64_t bytes, moved; // size of the body; transferred bytes of header and body
    int next;              // index of the next part of the lane, or -1
};

// The unfinished parts in one direction between this rank and a peer, in order.
struct lane {
    int first, last; // indices in `parts`; first -1: none
};

enum direction { SEND, RECEIVE, DIRECTIONS };

struct socket_transport {
    struct transport base;
    int fds[WORLD_SIZE_MAX];
    struct lane lanes[DIRECTIONS][WORLD_SIZE_MAX];
    struct part *parts;
    int part_count, part_max;
    int open; // unfinished parts
    uint64_t tag;
    int lost; // peer, or -1
    int failed;
};

static struct socket_transport *self(struct transport *t)
{
    return (struct socket_transport *)t;
}

// ---- setting an exchange up ----

static enum status parts_reserve(struct socket_transport *s, int count, struct error *error)
{
    if (count <= s->part_max)
        return STATUS_OK;
    struct part *parts = reallocarray(s->parts, (size_t)count, sizeof(*parts));
    if (!parts)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d messages", count);
    s->parts = parts;
    s->part_max = count;
    return STATUS_OK;
}

static void lane_append(struct socket_transport *s, enum direction direction, int peer, char *data,
                        size_t bytes)
{
    if (bytes == 0)
        return;
    int index = s->part_count++;
    s->parts[index] = (struct part){.data = data, .bytes = bytes, .next = -1};
    if (direction == SEND)
        s->parts[index].header = (struct header){.tag = s->tag, .bytes = bytes};
    struct lane *lane = &s->lanes[direction][peer];
    if (lane->first < 0)
        lane->first = index;
    else
        s->parts[lane->last].next = index;
    lane->last = index;
    s->open++;
}

// Index of the first message from `at` on that is sent to (SEND), or received from, the own rank.
static int own_next(const struct socket_transport *s, const struct message *messages, int count,
                    int at, enum direction direction)
{
    for (; at < count; at++) {
        size_t bytes = direction == SEND ? messages[at].send_bytes : messages[at].receive_bytes;
        if (messages[at].peer == s->base.rank && bytes > 0)
            break;
    }
    return at;
}

// Copies the messages from this rank to itself. The two sides of a copy may be in different
// messages.
static enum status own_copy(const struct socket_transport *s, const struct message *messages,
                            int count, struct error *error)
{
    int from = own_next(s, messages, count, 0, SEND);
    int to = own_next(s, messages, count, 0, RECEIVE);
    while (from < count || to < count) {
        size_t bytes = from < count ? messages[from].send_bytes : 0;
        size_t room = to < count ? messages[to].receive_bytes : 0;
        if (bytes != room)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "a local copy of %zu bytes to a place of %zu", bytes, room);
        memmove(messages[to].receive, messages[from].send, bytes);
        from = own_next(s, messages, count, from + 1, SEND);
        to = own_next(s, messages, count, to + 1, RECEIVE);
    }
    return STATUS_OK;
}

static enum status socket_start(struct transport *t, uint64_t tag, const struct message *messages,
                                int count, struct error *error)
{
    struct socket_transport *s = self(t);
    if (s->failed || s->open > 0)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the exchange before %s",
                         s->failed ? "has failed" : "is not done");
    for (int i = 0; i < count; i++)
        if (messages[i].peer < 0 || messages[i].peer >= t->world_size)
            return error_set(error, STATUS_INVALID_ARGUMENT, "a message with rank %d of %d",
                             messages[i].peer, t->world_size);
    enum status status = parts_reserve(s, 2 * count, error);
    if (status == STATUS_OK)
        status = own_copy(s, messages, count, error);
    if (status != STATUS_OK)
        return status;
    s->tag = tag;
    s->part_count = 0;
    for (int i = 0; i < count; i++) {
        const struct message *m = &messages[i];
        if (m->peer == t->rank)
            continue;
        lane_append(s, SEND, m->peer, (char *)(uintptr_t)m->send, m->send_bytes);
        lane_append(s, RECEIVE, m->peer, m->receive, m->receive_bytes);
    }
    return STATUS_OK;
}

// ---- moving bytes ----

static enum status peer_lost(struct socket_transport *s, int peer, int number, struct error *error)
{
    s->failed = 1;
    s->lost = peer;
    if (number == 0)
        return error_set(error, STATUS_UNAVAILABLE, "rank %d has closed its connection to rank %d",
                         peer, s->base.rank);
    return error_set(error, STATUS_UNAVAILABLE, "rank %d lost its connection to rank %d: %s",
                     s->base.rank, peer, strerror(number));
}

static enum status header_check(struct socket_transport *s, int peer, const struct part *part,
                                struct error *error)
{
    const struct header *got = &part->header;
    if (got->tag == s->tag && got->bytes == part->bytes)
        return STATUS_OK;
    s->failed = 1;
    return error_set(error, STATUS_INTERNAL,
                     "rank %d sent message %#" PRIx64 " of %" PRIu64
                     " bytes where rank %d expects message %#" PRIx64 " of %" PRIu64,
                     peer, got->tag, got->bytes, s->base.rank, s->tag, part->bytes);
}

static void vector_append(struct iovec *vector, int *count, char *base, uint64_t bytes,
                          uint64_t skip)
{
    if (skip >= bytes)
        return;
    vector[*count] = (struct iovec){base + skip, bytes - skip};
    (*count)++;
}

// Lists the bytes that are left of the first BATCH_PARTS parts of a lane. Returns the number of
// entries.
static int lane_vector(struct socket_transport *s, const struct lane *lane, struct iovec *vector)
{
    int count = 0, parts = 0;
    for (int i = lane->first; i >= 0 && parts < BATCH_PARTS; i = s->parts[i].next, parts++) {
        struct part *part = &s->parts[i];
        uint64_t body =
            part->moved > sizeof(struct header) ? part->moved - sizeof(struct header) : 0;
        vector_append(vector, &count, (char *)&part->header, sizeof(struct header), part->moved);
        vector_append(vector, &count, part->data, part->bytes, body);
    }
    return count;
}

// Accounts for `moved` more bytes of a lane. Checks a received header as soon as it is complete,
// because the body behind a wrong header may never come.
static enum status lane_advance(struct socket_transport *s, enum direction direction, int peer,
                                uint64_t moved, struct error *error)
{
    struct lane *lane = &s->lanes[direction][peer];
    while (lane->first >= 0 && moved > 0) {
        struct part *part = &s->parts[lane->first];
        uint64_t left = sizeof(struct header) + part->bytes - part->moved;
        uint64_t before = part->moved, step = moved < left ? moved : left;
        part->moved += step;
        moved -= step;
        if (direction == RECEIVE && before < sizeof(struct header) &&
            part->moved >= sizeof(struct header)) {
            enum status status = header_check(s, peer, part, error);
            if (status != STATUS_OK)
                return status;
        }
        if (step == left) {
            lane->first = part->next;
            s->open--;
        }
    }
    return STATUS_OK;
}

// Moves as many bytes of one lane as the socket accepts or has. Sets *moved to 1 if any were moved.
static enum status lane_pump(struct socket_transport *s, enum direction direction, int peer,
                             int *moved, struct error *error)
{
    const struct lane *lane = &s->lanes[direction][peer];
    struct iovec vector[2 * BATCH_PARTS];
    while (lane->first >= 0) {
        struct msghdr message = {.msg_iov = vector};
        message.msg_iovlen = (size_t)lane_vector(s, lane, vector);
        ssize_t bytes = direction == SEND
                            ? sendmsg(s->fds[peer], &message, MSG_DONTWAIT | MSG_NOSIGNAL)
                            : recvmsg(s->fds[peer], &message, MSG_DONTWAIT);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes < 0 && errno == EAGAIN)
            return STATUS_OK;
        if (bytes <= 0)
            return peer_lost(s, peer, bytes < 0 ? errno : 0, error);
        *moved = 1;
        enum status status = lane_advance(s, direction, peer, (uint64_t)bytes, error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

// Moves bytes of all lanes without waiting.
static enum status pump(struct socket_transport *s, int *moved, struct error *error)
{
    for (int peer = 0; peer < s->base.world_size && s->open > 0; peer++) {
        enum status status = lane_pump(s, SEND, peer, moved, error);
        if (status == STATUS_OK)
            status = lane_pump(s, RECEIVE, peer, moved, error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

// Waits until a lane can move. Also watches peers without unfinished parts: the rank that sees a
// peer's end first can name the rank that is gone.
static enum status wait_ready(struct socket_transport *s, int timeout_ms, struct error *error)
{
    struct pollfd polls[WORLD_SIZE_MAX];
    for (int peer = 0; peer < s->base.world_size; peer++) {
        polls[peer] = (struct pollfd){.fd = s->fds[peer]};
        if (s->lanes[SEND][peer].first >= 0)
            polls[peer].events |= POLLOUT;
        if (s->lanes[RECEIVE][peer].first >= 0)
            polls[peer].events |= POLLIN;
    }
    int ready = poll(polls, (nfds_t)s->base.world_size, timeout_ms);
    if (ready < 0 && errno != EINTR) {
        s->failed = 1;
        return error_set(error, STATUS_INTERNAL, "cannot wait for peers: %s", strerror(errno));
    }
    for (int peer = 0; ready > 0 && peer < s->base.world_size; peer++)
        if (polls[peer].events == 0 && (polls[peer].revents & (POLLHUP | POLLERR | POLLNVAL)))
            return peer_lost(s, peer, 0, error);
    return STATUS_OK;
}

static enum status socket_progress(struct transport *t, int timeout_ms, int *done,
                                   struct error *error)
{
    struct socket_transport *s = self(t);
    int moved = 0;
    if (s->failed)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the exchange before has failed");
    enum status status = pump(s, &moved, error);
    if (status == STATUS_OK && !moved && s->open > 0 && timeout_ms != 0) {
        status = wait_ready(s, timeout_ms, error);
        if (status == STATUS_OK)
            status = pump(s, &moved, error);
    }
    if (status == STATUS_OK)
        *done = s->open == 0;
    return status;
}

static int socket_waiting_for(const struct transport *t)
{
    const struct socket_transport *s = (const struct socket_transport *)t;
    static const enum direction order[DIRECTIONS] = {RECEIVE, SEND};
    for (int i = 0; i < DIRECTIONS && s->open > 0; i++)
        for (int peer = 0; peer < t->world_size; peer++)
            if (s->lanes[order[i]][peer].first >= 0)
                return peer;
    return -1;
}

static int socket_lost_peer(const struct transport *t)
{
    return ((const struct socket_transport *)t)->lost;
}

// ---- life ----

static void socket_destroy(struct transport *t)
{
    if (!t)
        return;
    struct socket_transport *s = self(t);
    for (int peer = 0; peer < t->world_size; peer++)
        if (s->fds[peer] >= 0)
            close(s->fds[peer]);
    free(s->parts);
    free(s);
}

static const struct transport_ops socket_ops = {
    .name = "socket",
    .start = socket_start,
    .progress = socket_progress,
    .waiting_for = socket_waiting_for,
    .lost_peer = socket_lost_peer,
    .destroy = socket_destroy,
};

// Enlarges the socket buffers. The full size needs a privilege; without it the kernel grants what
// the system's limit allows. Correctness does not depend on the size.
static void buffer_raise(int fd)
{
    int bytes = SOCKET_BUFFER_BYTES;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

static bool is_far(int fd)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof(address);
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): getsockname() fills it.
    return getsockname(fd, (struct sockaddr *)&address, &size) == 0 && address.ss_family != AF_UNIX;
}

static enum status peer_adopt(int fd, int peer, struct error *error)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "descriptor %d for rank %d: %s", fd, peer,
                         strerror(errno));
    buffer_raise(fd);
    return STATUS_OK;
}

enum status transport_socket_create(int rank, int world_size, const int *peer_fds,
                                    struct transport **t, struct error *error)
{
    if (world_size < 1 || world_size > WORLD_SIZE_MAX || rank < 0 || rank >= world_size)
        return error_set(error, STATUS_INVALID_ARGUMENT, "rank %d of %d; a world has 1 to %d ranks",
                         rank, world_size, WORLD_SIZE_MAX);
    for (int peer = 0; peer < world_size; peer++) {
        enum status status = peer == rank ? STATUS_OK : peer_adopt(peer_fds[peer], peer, error);
        if (status != STATUS_OK)
            return status;
    }
    struct socket_transport *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a transport");
    s->base = (struct transport){.ops = &socket_ops, .rank = rank, .world_size = world_size};
    s->lost = -1;
    memset(s->lanes, 0xff, sizeof(s->lanes));
    memcpy(s->fds, peer_fds, (size_t)world_size * sizeof(int));
    s->fds[rank] = -1;
    for (int peer = 0; peer < world_size; peer++)
        if (peer != rank && is_far(peer_fds[peer]))
            s->base.far |= UINT64_C(1) << peer;
    *t = &s->base;
    return STATUS_OK;
}
