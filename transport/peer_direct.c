// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_direct.h"

// The exchange that is being put together.
struct building {
    struct kernel_exchange exchange; // its next launch
    cudaStream_t stream;
    int peer; // destination of the next copies
};

static cudaError_t launch(struct building *b, bool last)
{
    b->exchange.last = last;
    cudaError_t result = peer_kernel_put(&b->exchange, b->stream);
    b->exchange.first = false;
    b->exchange.copy_count = 0;
    return result;
}

static cudaError_t copy_add(struct building *b, const struct kernel_copy *copy)
{
    cudaError_t result =
        b->exchange.copy_count == PEER_KERNEL_COPIES ? launch(b, false) : cudaSuccess;
    b->exchange.copies[b->exchange.copy_count++] = *copy;
    return result;
}

// Adds a copy to b->peer. One kernel copy does the two innermost loops.
static cudaError_t copies_add(void *context, char *to, const char *from,
                              const struct strided_copy *c)
{
    struct building *b = context;
    struct strided_loop rows = {1, 0, 0}, blocks = {1, 0, 0};
    cudaError_t result = cudaSuccess;
    if (c->bytes * strided_runs(c, 0) > INT32_MAX)
        return cudaErrorInvalidValue;
    if (c->loop_count > 0)
        rows = c->loops[0];
    if (c->loop_count > 1)
        blocks = c->loops[1];
    for (int64_t i = 0, runs = strided_runs(c, 2); i < runs && result == cudaSuccess; i++) {
        int64_t from_step, to_step;
        strided_run(c, 2, i, &from_step, &to_step);
        result = copy_add(b, &(struct kernel_copy){.from = from + from_step,
                                                   .to = to + to_step,
                                                   .bytes = (uint32_t)c->bytes,
                                                   .rows = (uint32_t)rows.count,
                                                   .blocks = (uint32_t)blocks.count,
                                                   .peer = b->peer,
                                                   .from_stride = rows.from,
                                                   .to_stride = rows.to,
                                                   .from_block = blocks.from,
                                                   .to_block = blocks.to});
    }
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

// Rank r sends to r + 1 first, then to r + 2, and so on, so that all ranks receive concurrently.
cudaError_t peer_direct_put(struct peer_transport *p, const struct message *messages, int count,
                            const struct traffic *traffic)
{
    struct building b = {.exchange = {.first = true}, .stream = p->stream};
    cudaError_t result = cudaSuccess;
    peers_set(p, traffic, &b.exchange);
    for (int step = 1; step < p->base.world_size && result == cudaSuccess; step++) {
        b.peer = (p->base.rank + step) % p->base.world_size;
        result = peer_copies_put(p, b.peer, messages, count, copies_add, &b);
    }
    b.peer = p->base.rank;
    if (result == cudaSuccess)
        result = peer_copies_put(p, b.peer, messages, count, copies_add, &b);
    b.exchange.mark = (uint32_t *)(uintptr_t)p->mark;
    b.exchange.mark_value = p->mark_value;
    b.exchange.time = (uint64_t *)(uintptr_t)p->stamp;
    p->mark = p->stamp = 0;
    if (result == cudaSuccess)
        result = launch(&b, true);
    return result == cudaSuccess && !p->capturing ? cudaEventRecord(p->last, p->stream) : result;
}
