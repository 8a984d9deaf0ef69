// SPDX-License-Identifier: Apache-2.0
#include "plan/collective_layout.h"

// ---- regions ----

struct region layout_region(const struct layout *l, int32_t buffer, int64_t first, int64_t count)
{
    return (struct region){
        .buffer = buffer, .offset = first * l->element, .bytes = count * l->element};
}

struct region layout_sent(const struct layout *l, int64_t first, int64_t count)
{
    return layout_region(l, l->send_buffer, l->send_first + first, count);
}

struct region layout_received(const struct layout *l, int64_t first, int64_t count)
{
    return layout_region(l, l->receive_buffer, l->receive_first + first, count);
}

struct region layout_part(const struct layout *l, struct region whole, int64_t first, int64_t count)
{
    return region_part(whole, first * l->element, count * l->element);
}

// First element of the k-th chunk.
static int64_t chunk_first(int64_t n, int k, int size)
{
    return n / size * k + n % size * k / size;
}

struct layout_range layout_chunks(int64_t n, int from, int to, int chunks)
{
    int64_t first = chunk_first(n, from, chunks);
    return (struct layout_range){first, chunk_first(n, to, chunks) - first};
}

#define SEGMENTS_MAX  8
// Bytes that are summed during the fixed cost of an exchange: its time beyond the transfer of its
// bytes.
#define SEGMENT_BYTES (INT64_C(24) << 20)

int layout_segments(const struct layout *l, int64_t elements)
{
    int64_t bytes = elements * l->element;
    int segments = 1;
    while (segments < SEGMENTS_MAX && segments * (segments + 1) * SEGMENT_BYTES <= bytes)
        segments++;
    return segments;
}

int layout_modulo(int number, int size)
{
    return (number % size + size) % size;
}

int32_t layout_scratch(struct layout *l, const char *name, int64_t count)
{
    return count > 0 ? builder_buffer(l->b, name, BUFFER_SCRATCH, count * l->element) : 0;
}

void layout_init(struct layout *l)
{
    const struct collective *c = l->c;
    int64_t send = collective_send_count(c, l->rank),
            receive = collective_receive_count(c, l->rank);
    if (c->in_place) {
        struct collective_shared shared = collective_shared(c, l->rank);
        if (shared.count > 0)
            l->send_buffer = l->receive_buffer =
                builder_buffer(l->b, "data", BUFFER_SHARED, shared.count * l->element);
        l->send_first = shared.send;
        l->receive_first = shared.receive;
        return;
    }
    if (send > 0)
        l->send_buffer = builder_buffer(l->b, "send", BUFFER_SEND, send * l->element);
    if (receive > 0)
        l->receive_buffer = builder_buffer(l->b, "receive", BUFFER_RECEIVE, receive * l->element);
}

// ---- exchanges ----

void layout_exchange(struct layout *l, const struct transfer *transfers, int count)
{
    builder_step(l->b, PHASE_FORWARD, l->step++);
    builder_exchange(l->b, transfers, count);
}

void layout_shift(struct layout *l, int to, struct region send, int from, struct region receive)
{
    struct transfer transfers[2];
    int count = 0;
    if (to >= 0)
        transfers[count++] = (struct transfer){.peer = to, .send = send};
    if (from >= 0)
        transfers[count++] = (struct transfer){.peer = from, .receive = receive};
    layout_exchange(l, transfers, count);
}

struct transfer layout_own_copy(const struct layout *l, struct region from, struct region to)
{
    bool there = from.buffer == to.buffer && from.offset == to.offset;
    from.bytes = there ? 0 : from.bytes;
    to.bytes = there ? 0 : to.bytes;
    return (struct transfer){.peer = l->rank, .send = from, .receive = to};
}

void layout_broadcast(struct layout *l, int root, struct region source, struct region data)
{
    int from = layout_modulo(l->rank - root, l->size), top = 1;
    while (top < l->size)
        top *= 2;
    for (int mask = top / 2; mask > 0; mask /= 2) {
        bool has = from % (2 * mask) == 0 && from + mask < l->size,
             gets = from % (2 * mask) == mask;
        struct transfer transfers[3];
        int count = 0;
        if (has)
            transfers[count++] = (struct transfer){.peer = layout_modulo(l->rank + mask, l->size),
                                                   .send = from == 0 ? source : data};
        if (gets)
            transfers[count++] =
                (struct transfer){.peer = layout_modulo(l->rank - mask, l->size), .receive = data};
        if (from == 0 && mask == top / 2)
            transfers[count++] = layout_own_copy(l, source, data);
        layout_exchange(l, transfers, count);
    }
}

void layout_double_up(struct layout *l, struct region data, int64_t n, int size)
{
    bool idle = l->rank >= size;
    for (int mask = 1; mask < size; mask *= 2) {
        int has = l->rank & ~(mask - 1), peer = idle ? -1 : l->rank ^ mask, gets = has ^ mask;
        struct layout_range own = layout_chunks(n, has, has + mask, size);
        struct layout_range others = layout_chunks(n, gets, gets + mask, size);
        if (idle)
            own = others = (struct layout_range){0, 0};
        layout_shift(l, peer, layout_part(l, data, own.first, own.count), peer,
                     layout_part(l, data, others.first, others.count));
    }
}

struct region layout_block_sent(const struct layout *l, int block)
{
    return layout_sent(l, block * l->c->count, l->c->count);
}

struct region layout_block_received(const struct layout *l, int block)
{
    return layout_received(l, block * l->c->count, l->c->count);
}
