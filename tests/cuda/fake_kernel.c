// SPDX-License-Identifier: Apache-2.0
// Simulates the kernel of small exchanges (transport/peer_kernel.h). Each of its copies, counter
// updates and waits is a separate stream item, so that exchanges of ranks interleave in any order.
#include <string.h>

#include "tests/cuda/fake_stream.h"
#include "transport/peer_kernel.h"

struct part {
    struct kernel_exchange exchange;
    int copy; // index of the copy that the item makes
};

// Compares the distance, so that counters may wrap around at 2^32.
static bool has_reached(uint32_t counter, uint32_t value)
{
    return (int32_t)(counter - value) >= 0;
}

// Raises `ready` at each sending peer: the destinations at this rank are free.
static bool peers_tell(void *arguments)
{
    struct kernel_exchange *x = &((struct part *)arguments)->exchange;
    for (int peer = 0; peer < PEER_KERNEL_RANKS && x->first; peer++)
        if (x->receives >> peer & 1)
            x->theirs[peer]->ready[x->rank] = x->own->received[peer] + 1;
    return true;
}

// Makes one copy. Waits until the peer's destination is free.
static bool copy_make(void *arguments)
{
    struct part *part = arguments;
    struct kernel_exchange *x = &part->exchange;
    const struct kernel_copy *c = &x->copies[part->copy];
    bool sends = x->sends >> c->peer & 1;
    if (sends && !has_reached(x->own->ready[c->peer], x->own->sent[c->peer] + 1))
        return false;
    for (uint32_t block = 0; block < c->blocks; block++)
        for (uint32_t row = 0; row < c->rows; row++)
            memcpy(c->to + block * c->to_block + row * c->to_stride,
                   c->from + block * c->from_block + row * c->from_stride, c->bytes);
    return true;
}

// Raises `arrived` at each receiving peer: all bytes of this rank have been sent.
static bool arrivals_tell(void *arguments)
{
    struct kernel_exchange *x = &((struct part *)arguments)->exchange;
    for (int peer = 0; peer < PEER_KERNEL_RANKS && x->last; peer++)
        if (x->sends >> peer & 1)
            x->theirs[peer]->arrived[x->rank] = ++x->own->sent[peer];
    return true;
}

// Waits until the bytes of all sending peers have arrived. Then writes mark and time.
static bool arrivals_await(void *arguments)
{
    struct kernel_exchange *x = &((struct part *)arguments)->exchange;
    for (int peer = 0; peer < PEER_KERNEL_RANKS && x->last; peer++)
        if ((x->receives >> peer & 1) &&
            !has_reached(x->own->arrived[peer], x->own->received[peer] + 1))
            return false;
    for (int peer = 0; peer < PEER_KERNEL_RANKS && x->last; peer++)
        x->own->received[peer] += x->receives >> peer & 1;
    if (x->mark)
        *x->mark = x->mark_value;
    if (x->time)
        *x->time = fake_now();
    return true;
}

cudaError_t peer_kernel_put(const struct kernel_exchange *x, cudaStream_t stream)
{
    struct part part = {*x, 0};
    fake_push_poll(stream, peers_tell, &part, sizeof(part));
    for (; part.copy < x->copy_count; part.copy++)
        fake_push_poll(stream, copy_make, &part, sizeof(part));
    fake_push_poll(stream, arrivals_tell, &part, sizeof(part));
    fake_push_poll(stream, arrivals_await, &part, sizeof(part));
    return cudaSuccess;
}
