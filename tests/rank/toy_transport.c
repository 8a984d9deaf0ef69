// SPDX-License-Identifier: Apache-2.0
#include "tests/rank/toy_transport.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/limits.h"

#define RING_BYTES   4096 // small, so that most messages take several rounds
#define PAUSE_US     20
#define HEADER_BYTES ((int64_t)sizeof(struct header))

// Bytes from one rank to another.
struct ring {
    _Atomic uint64_t put, taken;
    char bytes[RING_BYTES];
};

// The header of each message.
struct header {
    uint64_t tag;
    int64_t bytes;
};

struct toy {
    struct transport base;
    struct ring *rings;      // [world_size][world_size], from, to; shared by all ranks
    int fds[WORLD_SIZE_MAX]; // sockets to the peers; the end of a socket: the peer is gone
    struct message *messages;
    int64_t *sent, *received; // [count], header included
    int count, lost;
    uint64_t tag;
    bool failed;
};

static struct toy *self(const struct transport *t)
{
    return (struct toy *)(uintptr_t)t;
}

// ---- rings -------------------------------------------------------------------------------------

static int64_t ring_put(struct ring *r, const char *data, int64_t bytes)
{
    uint64_t put = atomic_load_explicit(&r->put, memory_order_relaxed);
    uint64_t taken = atomic_load_explicit(&r->taken, memory_order_acquire);
    int64_t room = RING_BYTES - (int64_t)(put - taken);
    int64_t count = bytes < room ? bytes : room;
    for (int64_t i = 0; i < count; i++)
        r->bytes[(put + (uint64_t)i) % RING_BYTES] = data[i];
    atomic_store_explicit(&r->put, put + (uint64_t)count, memory_order_release);
    return count;
}

static int64_t ring_take(struct ring *r, char *data, int64_t bytes)
{
    uint64_t taken = atomic_load_explicit(&r->taken, memory_order_relaxed);
    uint64_t put = atomic_load_explicit(&r->put, memory_order_acquire);
    int64_t there = (int64_t)(put - taken);
    int64_t count = bytes < there ? bytes : there;
    for (int64_t i = 0; i < count; i++)
        data[i] = r->bytes[(taken + (uint64_t)i) % RING_BYTES];
    atomic_store_explicit(&r->taken, taken + (uint64_t)count, memory_order_release);
    return count;
}

static struct ring *ring_of(const struct toy *t, int from, int to)
{
    return &t->rings[from * t->base.world_size + to];
}

// ---- one exchange ------------------------------------------------------------------------------

static enum status own_copy(const struct message *messages, int count, int rank,
                            struct error *error)
{
    int to = 0;
    for (int from = 0; from < count; from++) {
        if (messages[from].peer != rank || messages[from].send_bytes == 0)
            continue;
        while (to < count && (messages[to].peer != rank || messages[to].receive_bytes == 0))
            to++;
        if (to == count || messages[to].receive_bytes != messages[from].send_bytes)
            return error_set(error, STATUS_INVALID_ARGUMENT, "a local copy of unequal sides");
        memmove(messages[to++].receive, messages[from].send, (size_t)messages[from].send_bytes);
    }
    return STATUS_OK;
}

static enum status toy_start(struct transport *base, uint64_t tag, const struct message *messages,
                             int count, struct error *error)
{
    struct toy *t = self(base);
    size_t room = (size_t)(count > 0 ? count : 1);
    if (t->failed || t->count > 0)
        return error_set(error, STATUS_FAILED_PRECONDITION, "the exchange before is not done");
    free(t->messages);
    free(t->sent);
    t->messages = calloc(room, sizeof(*t->messages));
    t->sent = calloc(room, 2 * sizeof(*t->sent));
    if (!t->messages || !t->sent)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for an exchange");
    t->received = t->sent + room;
    memcpy(t->messages, messages, (size_t)count * sizeof(*messages));
    t->count = count;
    t->tag = tag;
    return own_copy(messages, count, base->rank, error);
}

static bool is_sent(const struct toy *t, int i)
{
    const struct message *m = &t->messages[i];
    return m->peer == t->base.rank || m->send_bytes == 0 ||
           t->sent[i] == HEADER_BYTES + (int64_t)m->send_bytes;
}

static bool is_received(const struct toy *t, int i)
{
    const struct message *m = &t->messages[i];
    return m->peer == t->base.rank || m->receive_bytes == 0 ||
           t->received[i] == HEADER_BYTES + (int64_t)m->receive_bytes;
}

static int64_t send_step(struct toy *t, int i)
{
    const struct message *m = &t->messages[i];
    const struct header header = {t->tag, (int64_t)m->send_bytes};
    struct ring *ring = ring_of(t, t->base.rank, m->peer);
    int64_t at = t->sent[i], moved;
    if (at < HEADER_BYTES)
        moved = ring_put(ring, (const char *)&header + at, HEADER_BYTES - at);
    else
        moved = ring_put(ring, (const char *)m->send + (at - HEADER_BYTES),
                         HEADER_BYTES + (int64_t)m->send_bytes - at);
    t->sent[i] += moved;
    return moved;
}

// A header is read only when all of it is there.
static enum status receive_step(struct toy *t, int i, int64_t *moved, struct error *error)
{
    const struct message *m = &t->messages[i];
    struct ring *ring = ring_of(t, m->peer, t->base.rank);
    struct header header = {0};
    if (t->received[i] > 0) {
        *moved = ring_take(ring, (char *)m->receive + (t->received[i] - HEADER_BYTES),
                           HEADER_BYTES + (int64_t)m->receive_bytes - t->received[i]);
        t->received[i] += *moved;
        return STATUS_OK;
    }
    *moved = 0;
    if (atomic_load_explicit(&ring->put, memory_order_acquire) -
            atomic_load_explicit(&ring->taken, memory_order_relaxed) <
        sizeof(header))
        return STATUS_OK;
    *moved = t->received[i] = ring_take(ring, (char *)&header, HEADER_BYTES);
    if (header.tag == t->tag && header.bytes == (int64_t)m->receive_bytes)
        return STATUS_OK;
    return error_set(error, STATUS_INTERNAL, "rank %d runs another schedule", m->peer);
}

// Messages to or from a rank are moved in list order.
static enum status pump(struct toy *t, bool *moved, bool *open, struct error *error)
{
    bool sending[WORLD_SIZE_MAX] = {false}, receiving[WORLD_SIZE_MAX] = {false};
    int64_t bytes = 0;
    *open = false;
    for (int i = 0; i < t->count; i++) {
        int peer = t->messages[i].peer;
        if (!is_sent(t, i) && !sending[peer]) {
            *moved |= send_step(t, i) > 0;
            sending[peer] = !is_sent(t, i);
        }
        if (!is_received(t, i) && !receiving[peer]) {
            enum status status = receive_step(t, i, &bytes, error);
            if (status != STATUS_OK)
                return status;
            *moved |= bytes > 0;
            receiving[peer] = !is_received(t, i);
        }
        *open |= !is_sent(t, i) || !is_received(t, i);
    }
    return STATUS_OK;
}

static int peer_gone(const struct toy *t)
{
    struct pollfd ends[WORLD_SIZE_MAX];
    for (int peer = 0; peer < t->base.world_size; peer++)
        ends[peer] = (struct pollfd){.fd = t->fds[peer]};
    poll(ends, (nfds_t)t->base.world_size, 0);
    for (int peer = 0; peer < t->base.world_size; peer++)
        if (t->fds[peer] >= 0 && ends[peer].revents & POLLHUP)
            return peer;
    return -1;
}

static enum status toy_progress(struct transport *base, int timeout_ms, int *done,
                                struct error *error)
{
    struct toy *t = self(base);
    bool moved = false, open = true;
    int64_t waited_us = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK) {
        status = pump(t, &moved, &open, error);
        if (status != STATUS_OK || moved || !open ||
            (timeout_ms >= 0 && waited_us >= timeout_ms * 1000))
            break;
        t->lost = peer_gone(t);
        if (t->lost >= 0)
            status = error_set(error, STATUS_UNAVAILABLE, "rank %d is gone", t->lost);
        usleep(PAUSE_US);
        waited_us += PAUSE_US;
    }
    t->failed = status != STATUS_OK;
    *done = !open;
    t->count = open ? t->count : 0;
    return status;
}

static int toy_waiting_for(const struct transport *base)
{
    const struct toy *t = self(base);
    for (int i = 0; i < t->count; i++)
        if (!is_sent(t, i) || !is_received(t, i))
            return t->messages[i].peer;
    return -1;
}

static int toy_lost_peer(const struct transport *base)
{
    return self(base)->lost;
}

static void toy_destroy(struct transport *base)
{
    struct toy *t = self(base);
    for (int peer = 0; peer < base->world_size; peer++)
        if (t->fds[peer] >= 0)
            close(t->fds[peer]);
    free(t->messages);
    free(t->sent);
    free(t);
}

static const struct transport_ops toy_ops = {
    .name = "toy",
    .start = toy_start,
    .progress = toy_progress,
    .waiting_for = toy_waiting_for,
    .lost_peer = toy_lost_peer,
    .destroy = toy_destroy,
};

// ---- all ranks ---------------------------------------------------------------------------------

static void *toy_share(int world_size)
{
    size_t bytes = sizeof(struct ring) * (size_t)(world_size * world_size);
    void *rings = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return rings == MAP_FAILED ? NULL : rings;
}

static enum status toy_create(void *shared, int rank, int world_size, const int *peer_fds,
                              struct transport **transport, struct error *error)
{
    struct toy *t = shared ? calloc(1, sizeof(*t)) : NULL;
    if (!t)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the transport");
    t->base = (struct transport){.ops = &toy_ops, .rank = rank, .world_size = world_size};
    t->rings = shared;
    t->lost = -1;
    memcpy(t->fds, peer_fds, sizeof(*peer_fds) * (size_t)world_size);
    *transport = &t->base;
    return STATUS_OK;
}

const struct world_transport toy_transport = {toy_share, toy_create};
