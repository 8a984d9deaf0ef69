// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_direct.h"

struct building {
    struct kernel_exchange exchange;
    cudaStream_t stream;
    int peer; // of the next copies
};

static cudaError_t launch(struct building *b, bool last)
{
    b->exchange.last = last;
    cudaError_t result = peer_kernel_put(&b->exchange, b->stream);
    b->exchange.first = false;
    b->exchange.copy_count = 0;
    return result;
}

static cudaError_t copy_add(void *context, char *to, const char *from, size_t bytes)
{
    struct building *b = context;
    cudaError_t result =
        b->exchange.copy_count == PEER_KERNEL_COPIES ? launch(b, false) : cudaSuccess;
    b->exchange.copies[b->exchange.copy_count++] =
        (struct kernel_copy){.from = from, .to = to, .bytes = bytes, .peer = b->peer};
    return result;
}

static cudaError_t own_copies_add(struct building *b, int rank, const struct message *messages,
                                  int count)
{
    cudaError_t result = cudaSuccess;
    b->peer = rank;
    for (int i = 0; i < count && result == cudaSuccess; i++)
        if (messages[i].peer == rank && messages[i].send_bytes > 0)
            result = copy_add(b, messages[i].receive, messages[i].send, messages[i].send_bytes);
    return result;
}

static void peers_set(const struct peer_transport *p, const struct traffic *traffic,
                      struct kernel_exchange *x)
{
    x->own = &p->flags->kernel;
    x->rank = p->base.rank;
    for (int peer = 0; peer < p->base.world_size; peer++) {
        if (peer == p->base.rank)
            continue;
        x->theirs[peer] = &p->remotes[peer].flags->kernel;
        x->sends |= (uint32_t)(traffic[peer].send_bytes > 0) << peer;
        x->receives |= (uint32_t)(traffic[peer].receive_bytes > 0) << peer;
    }
}

// Every rank begins with the rank behind it, so that all receive at the same time.
cudaError_t peer_direct_put(struct peer_transport *p, const struct message *messages, int count,
                            const struct traffic *traffic)
{
    struct building b = {.exchange = {.first = true}, .stream = p->stream};
    cudaError_t result = cudaSuccess;
    peers_set(p, traffic, &b.exchange);
    for (int step = 1; step < p->base.world_size && result == cudaSuccess; step++) {
        b.peer = (p->base.rank + step) % p->base.world_size;
        result = peer_runs_put(p, b.peer, messages, count, copy_add, &b);
    }
    if (result == cudaSuccess)
        result = own_copies_add(&b, p->base.rank, messages, count);
    b.exchange.mark = (uint32_t *)(uintptr_t)p->mark;
    b.exchange.mark_value = p->mark_value;
    b.exchange.time = (uint64_t *)(uintptr_t)p->stamp;
    p->mark = p->stamp = 0;
    if (result == cudaSuccess)
        result = launch(&b, true);
    return result == cudaSuccess && !p->capturing ? cudaEventRecord(p->last, p->stream) : result;
}
