// SPDX-License-Identifier: Apache-2.0
// KV all-gather: every rank receives the keys and values of all ranks; queries stay in place.
//
// Forward, step i: rank r attends the KV of rank r - i, its own in step 0. Meanwhile the exchange
// of the step brings the KV of rank r - i - 1. Received KV stays in its buffer for the backward.
//
// Backward, i = 1..P: rank r computes its part of dK, dV of rank r - i, and sends the part to that
// owner while it computes the next one. Its own part comes last (i = P). The owner adds the parts
// in the order of ranks.
#include "plan/part.h"

struct gather {
    struct tensors tensors;
    struct part part;
    int rank, size;
    int32_t kv[WORLD_SIZE_MAX];   // buffers by source rank
    int32_t parts[2];             // dK, dV for another rank, used alternately
    int32_t home[WORLD_SIZE_MAX]; // dK, dV of the own keys, by the rank that computed them
};

static struct team one(int rank)
{
    return (struct team){rank, 1};
}

static struct pair gather_pair(const struct gather *g, int32_t buffer, int owner, int element)
{
    return part_keys(&g->part, buffer, shard_rows(g->part.c, SIDE_KV, owner), element);
}

static struct pair gather_kv(const struct gather *g, int source)
{
    return gather_pair(g, g->kv[source], source, case_element_bytes(g->part.c));
}

// The rank `distance` places before this one, modulo the world size.
static int before(const struct gather *g, int distance)
{
    return (g->rank - distance + 2 * g->size) % g->size;
}

static int32_t numbered_buffer(const struct gather *g, const char *name, int number, int owner,
                               int element)
{
    char suffix[12];
    snprintf(suffix, sizeof suffix, "%d", number);
    return part_key_buffer(&g->part, name, suffix, shard_rows(g->part.c, SIDE_KV, owner), element);
}

static void gather_buffers(struct gather *g)
{
    const struct cp_case *c = g->part.c;
    for (int rank = 0; rank < g->size; rank++) {
        bool self = rank == g->rank;
        g->kv[rank] = self ? g->tensors.kv.both.buffer
                           : numbered_buffer(g, "kv", rank, rank, case_element_bytes(c));
        if (c->training)
            g->home[rank] = numbered_buffer(g, "dkv_home", rank, g->rank, 4);
    }
    for (int i = 0; i < 2 && c->training && g->size > 1; i++)
        g->parts[i] = part_key_buffer(&g->part, "dkv_part", i == 0 ? "0" : "1",
                                      shard_rows_max(c, SIDE_KV), 4);
}

static void gather_forward(struct gather *g)
{
    struct builder *b = g->part.b;
    for (int step = 0; step < g->size; step++) {
        builder_step(b, PHASE_FORWARD, step);
        if (step + 1 < g->size) {
            int to = before(g, -(step + 1)), from = before(g, step + 1);
            const struct transfer transfers[] = {
                {.peer = to, .send = g->tensors.kv.both},
                {.peer = from, .receive = gather_kv(g, from).both},
            };
            builder_exchange(b, transfers, 2);
        }
        if (step == 0) {
            tensors_begin(&g->tensors, b, PHASE_FORWARD);
            part_forward_begin(&g->part);
        }
        part_forward(&g->part, gather_kv(g, before(g, step)), one(before(g, step)));
    }
    builder_convert(b, g->part.o_sum, g->tensors.out);
    tensors_reduce(&g->tensors, b, PHASE_FORWARD);
}

// Sends the part of rank r - step to its owner, and receives a part for the own keys from rank r +
// step.
static void gather_return(const struct gather *g, int step, struct region part)
{
    int owner = before(g, step), from = before(g, -step);
    const struct transfer transfers[] = {
        {.peer = owner, .send = part},
        {.peer = from, .receive = gather_pair(g, g->home[from], g->rank, 4).both},
    };
    builder_exchange(g->part.b, transfers, 2);
}

static void gather_backward(struct gather *g)
{
    struct part *p = &g->part;
    builder_step(p->b, PHASE_BACKWARD, 0);
    tensors_begin(&g->tensors, p->b, PHASE_BACKWARD);
    part_backward_begin(p);
    for (int step = 1; step <= g->size; step++) {
        int owner = before(g, step); // itself in the last step
        builder_step(p->b, PHASE_BACKWARD, step - 1);
        int32_t buffer = step < g->size ? g->parts[step % 2] : g->home[g->rank];
        struct pair part = gather_pair(g, buffer, owner, 4);
        builder_fill(p->b, part.both, 0);
        part_backward(p, gather_kv(g, owner), part, one(owner));
        if (step < g->size)
            gather_return(g, step, part.both);
    }
    struct region sum = gather_pair(g, g->home[0], g->rank, 4).both;
    for (int rank = 1; rank < g->size; rank++)
        builder_add(p->b, gather_pair(g, g->home[rank], g->rank, 4).both, sum);
    builder_convert(p->b, p->dq_sum, g->tensors.dq);
    builder_convert(p->b, sum, g->tensors.dkv.both);
    tensors_reduce(&g->tensors, p->b, PHASE_BACKWARD);
}

void gather_build(struct builder *b)
{
    struct gather *g = builder_alloc(b, 1, sizeof *g);
    if (!g)
        return;
    g->rank = builder_rank(b);
    g->size = builder_case(b)->world_size;
    tensors_init(&g->tensors, b);
    if (!part_init_own(&g->part, b, &g->tensors))
        return;
    gather_buffers(g);
    gather_forward(g);
    if (g->part.c->training)
        gather_backward(g);
}
