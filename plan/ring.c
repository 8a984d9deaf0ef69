// SPDX-License-Identifier: Apache-2.0
#include "plan/ring.h"

// ---- who and where ----

static struct team ring_team(const struct ring *r, int index)
{
    int size = r->part->team.size;
    return (struct team){index * size, size};
}

// The rank of the same place in another team.
static int ring_rank(const struct ring *r, int index)
{
    return index * r->part->team.size + r->place;
}

static struct pair ring_pair(const struct ring *r, int32_t buffer, int source, int element)
{
    return part_keys(r->part, buffer, team_rows(r->part->c, SIDE_KV, ring_team(r, source)),
                     element);
}

void ring_init(struct ring *r, struct part *part, int32_t kv)
{
    const struct cp_case *c = part->c;
    int members = part->team.size, rank = builder_rank(part->b);
    int size = c->world_size / members, index = rank / members;
    *r = (struct ring){
        .part = part, .kv = kv, .size = size, .index = index, .place = rank % members};
    r->next = ring_rank(r, (index + 1) % size);
    r->previous = ring_rank(r, (index + size - 1) % size);

    int64_t rows_max = team_rows_max(c, SIDE_KV, members);
    int element = case_element_bytes(c);
    if (size > 1)
        r->slot[0] = part_key_buffer(part, "slot", "0", rows_max, element);
    if (size > 2)
        r->slot[1] = part_key_buffer(part, "slot", "1", rows_max, element);
    if (!c->training)
        return;
    r->sum[0] = part_key_buffer(part, "dkv_part", "0", rows_max, 4);
    if (size > 1) {
        r->sum[1] = part_key_buffer(part, "dkv_part", "1", rows_max, 4);
        r->arrived = part_key_buffer(part, "dkv_arrived", "", rows_max, 4);
    }
}

// ---- forward ----

static int forward_source(const struct ring *r, int step)
{
    return (r->index - step + r->size) % r->size;
}

static struct pair forward_kv(const struct ring *r, int step)
{
    int32_t buffer = step == 0 ? r->kv : r->slot[(step - 1) % 2];
    return ring_pair(r, buffer, forward_source(r, step), case_element_bytes(r->part->c));
}

static void forward_exchange(const struct ring *r, int step)
{
    const struct transfer transfers[] = {
        {.peer = r->next, .send = forward_kv(r, step).both},
        {.peer = r->previous, .receive = forward_kv(r, step + 1).both},
    };
    builder_exchange(r->part->b, transfers, 2);
}

void ring_forward(const struct ring *r)
{
    for (int step = 0; step < r->size; step++) {
        builder_step(r->part->b, PHASE_FORWARD, step);
        if (step + 1 < r->size)
            forward_exchange(r, step);
        if (step == 0)
            part_forward_begin(r->part);
        part_forward(r->part, forward_kv(r, step), ring_team(r, forward_source(r, step)));
    }
}

// ---- backward ----

static int backward_source(const struct ring *r, int step)
{
    return (r->index + 1 + step) % r->size;
}

static struct pair backward_kv(const struct ring *r, int step)
{
    int32_t buffer = step == r->size - 1 ? r->kv : r->slot[(r->size - 2 + step) % 2];
    return ring_pair(r, buffer, backward_source(r, step), case_element_bytes(r->part->c));
}

// The step's own part of dK, dV, and after its addition the sum so far.
static struct pair backward_sum(const struct ring *r, int step)
{
    return ring_pair(r, r->sum[step % 2], backward_source(r, step), 4);
}

static struct region backward_arrived(const struct ring *r, int step)
{
    return ring_pair(r, r->arrived, backward_source(r, step), 4).both;
}

// The next KV comes in, and the sum for the KV that is being attended.
static void backward_exchange(const struct ring *r, int step)
{
    struct transfer transfers[4];
    int count = 0;
    if (step + 2 < r->size) {
        transfers[count++] =
            (struct transfer){.peer = r->previous, .send = backward_kv(r, step).both};
        transfers[count++] =
            (struct transfer){.peer = r->next, .receive = backward_kv(r, step + 1).both};
    }
    if (step > 0) {
        transfers[count++] =
            (struct transfer){.peer = r->previous, .send = backward_sum(r, step - 1).both};
        transfers[count++] =
            (struct transfer){.peer = r->next, .receive = backward_arrived(r, step)};
    }
    if (count > 0)
        builder_exchange(r->part->b, transfers, count);
}

struct pair ring_backward(const struct ring *r)
{
    struct builder *b = r->part->b;
    builder_step(b, PHASE_BACKWARD, 0);
    part_backward_begin(r->part);
    for (int step = 0; step < r->size; step++) {
        builder_step(b, PHASE_BACKWARD, step);
        backward_exchange(r, step);
        struct pair sum = backward_sum(r, step);
        builder_fill(b, sum.both, 0);
        part_backward(r->part, backward_kv(r, step), sum, ring_team(r, backward_source(r, step)));
        if (step > 0)
            builder_add(b, backward_arrived(r, step), sum.both);
    }
    return backward_sum(r, r->size - 1);
}

// ---- p2p: teams of one rank ----

void ring_build(struct builder *b)
{
    struct tensors t;
    struct part part;
    struct ring r;
    tensors_init(&t, b);
    if (!part_init_own(&part, b, &t))
        return;
    ring_init(&r, &part, t.kv.both.buffer);
    tensors_begin(&t, b, PHASE_FORWARD);
    ring_forward(&r);
    builder_convert(b, part.o_sum, t.out);
    tensors_reduce(&t, b, PHASE_FORWARD);
    if (!part.c->training)
        return;
    builder_step(b, PHASE_BACKWARD, 0);
    tensors_begin(&t, b, PHASE_BACKWARD);
    struct pair sum = ring_backward(&r);
    builder_convert(b, part.dq_sum, t.dq);
    builder_convert(b, sum.both, t.dkv.both);
    tensors_reduce(&t, b, PHASE_BACKWARD);
}
