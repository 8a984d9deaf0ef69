// SPDX-License-Identifier: Apache-2.0
// The ring (p2p): keys and values go round, queries stay.
//
// Forward, step i of P: the rank attends the KV of rank (r - i) and hands it on to r + 1 meanwhile.
// Its own comes first, so that the first exchange is hidden, too. Two slots take turns: one is
// attended and sent, the other receives.
//
// Backward runs the other way round: step i takes the KV of rank (r + 1 + i), beginning with what
// the last forward step has left in its slot and ending with the own, which is at hand. So KV
// travels P - 2 hops. The sum of dK, dV of a rank starts at its predecessor and goes one hop a step
// behind its KV, in fp32; the last of P - 1 hops brings it home while the own part is computed.
#include <math.h>

#include "common/mutation.h"
#include "plan/builder.h"

struct ring {
    struct builder *b;
    const struct cp_case *c;
    int rank, size, next, previous;

    // Buffers; those of the backward only when training.
    int32_t kv, slot[2], dkv, part[2], arrived;
    struct region q, d_out, out, lse, dq;     // inputs and outputs
    struct region o_sum, dq_sum, d, lse_seen; // lse_seen: what backward reads

    struct span *q_spans, *kv_spans;
    int q_span_count;
    struct slice *slices;
};

// Keys and values (or their gradients) of one rank, one behind the other.
struct pair {
    struct region k, v, both;
};

static int64_t kv_bytes(const struct ring *r, int64_t rows, int element)
{
    return rows * r->c->kv_heads * (r->c->head_dim_qk + r->c->head_dim_v) * element;
}

static struct pair pair_of(const struct ring *r, int32_t buffer, int source, int element)
{
    int64_t rows = shard_rows(r->c, SIDE_KV, source);
    int64_t both = kv_bytes(r, rows, element);
    int64_t k = rows * r->c->kv_heads * r->c->head_dim_qk * element;
    return (struct pair){
        .k = {buffer, 0, k}, .v = {buffer, k, both - k}, .both = {buffer, 0, both}};
}

// ---- buffers ----

static struct region whole(struct ring *r, const char *name, enum buffer_role role, int64_t bytes)
{
    return (struct region){builder_buffer(r->b, name, role, bytes), 0, bytes};
}

static int32_t key_buffer(struct ring *r, const char *name, enum buffer_role role, int64_t rows,
                          int element)
{
    return builder_buffer(r->b, name, role, kv_bytes(r, rows, element));
}

static void forward_buffers(struct ring *r, int64_t q_rows, int64_t kv_rows, int64_t kv_rows_max)
{
    int element = case_element_bytes(r->c);
    r->q = whole(r, "q", BUFFER_INPUT_Q, q_rows * r->c->head_dim_qk * element);
    r->kv = key_buffer(r, "kv", BUFFER_INPUT_KV, kv_rows, element);
    r->out = whole(r, "out", BUFFER_OUT, q_rows * r->c->head_dim_v * element);
    r->lse = whole(r, "lse", BUFFER_LSE, q_rows * 4);
    r->o_sum = whole(r, "o_sum", BUFFER_SCRATCH, q_rows * r->c->head_dim_v * 4);
    if (r->size > 1)
        r->slot[0] = key_buffer(r, "slot0", BUFFER_SCRATCH, kv_rows_max, element);
    if (r->size > 2)
        r->slot[1] = key_buffer(r, "slot1", BUFFER_SCRATCH, kv_rows_max, element);
}

static void backward_buffers(struct ring *r, int64_t q_rows, int64_t kv_rows, int64_t kv_rows_max)
{
    int element = case_element_bytes(r->c);
    r->d_out = whole(r, "dout", BUFFER_INPUT_DO, q_rows * r->c->head_dim_v * element);
    r->dq = whole(r, "dq", BUFFER_DQ, q_rows * r->c->head_dim_qk * element);
    r->dkv = key_buffer(r, "dkv", BUFFER_DKV, kv_rows, element);
    r->d = whole(r, "d", BUFFER_SCRATCH, q_rows * 4);
    r->dq_sum = whole(r, "dq_sum", BUFFER_SCRATCH, q_rows * r->c->head_dim_qk * 4);
    r->part[0] = key_buffer(r, "dkv_part0", BUFFER_SCRATCH, kv_rows_max, 4);
    if (r->size > 1) {
        r->part[1] = key_buffer(r, "dkv_part1", BUFFER_SCRATCH, kv_rows_max, 4);
        r->arrived = key_buffer(r, "dkv_arrived", BUFFER_SCRATCH, kv_rows_max, 4);
    }
}

static bool ring_init(struct ring *r, struct builder *b)
{
    const struct cp_case *c = builder_case(b);
    int rank = builder_rank(b), size = c->world_size;
    *r = (struct ring){.b = b,
                       .c = c,
                       .rank = rank,
                       .size = size,
                       .next = (rank + 1) % size,
                       .previous = (rank + size - 1) % size};

    int64_t q_rows = shard_rows(c, SIDE_Q, rank) * c->heads;
    int64_t kv_rows = shard_rows(c, SIDE_KV, rank), kv_rows_max = shard_rows_max(c, SIDE_KV);
    forward_buffers(r, q_rows, kv_rows, kv_rows_max);
    if (c->training)
        backward_buffers(r, q_rows, kv_rows, kv_rows_max);
    r->lse_seen = r->lse;

    size_t spans = (size_t)shard_spans_max(c);
    r->q_spans = builder_alloc(b, spans, sizeof *r->q_spans);
    r->kv_spans = builder_alloc(b, spans, sizeof *r->kv_spans);
    r->slices = builder_alloc(b, spans * 2, sizeof *r->slices);
    if (!r->q_spans || !r->kv_spans || !r->slices)
        return false;
    r->q_span_count = shard_spans(c, SIDE_Q, rank, r->q_spans);
    return true;
}

// The own queries against the keys of `source`. Returns how many slices there are.
static int ring_slices(struct ring *r, int source)
{
    int count = shard_spans(r->c, SIDE_KV, source, r->kv_spans);
    if (MUTATED(SWAP_CHUNKS) && source != r->rank)
        for (int i = 0; i < count; i++)
            r->kv_spans[i].position =
                r->c->seqlen_kv - r->kv_spans[i].position - r->kv_spans[i].len;
    return slice_build(r->c, r->q_spans, r->q_span_count, r->kv_spans, count, 0, r->slices);
}

// ---- forward ----

static int forward_source(const struct ring *r, int step)
{
    return (r->rank - step + r->size) % r->size;
}

static struct pair forward_kv(const struct ring *r, int step)
{
    int32_t buffer = step == 0 ? r->kv : r->slot[(step - 1) % 2];
    return pair_of(r, buffer, forward_source(r, step), case_element_bytes(r->c));
}

static void forward_exchange(struct ring *r, int step)
{
    const struct transfer transfers[] = {
        {.peer = r->next, .send = forward_kv(r, step).both},
        {.peer = r->previous, .receive = forward_kv(r, step + 1).both},
    };
    builder_exchange(r->b, transfers, 2);
}

static void forward_attend(struct ring *r, int step)
{
    if (MUTATED(DROP_STEP) && step == 1)
        return;
    struct pair kv = forward_kv(r, MUTATED(STALE_SLOT) && step == 1 ? 0 : step);
    const struct region operand[OPERANDS_MAX] = {
        [ATTEND_Q] = r->q,     [ATTEND_K] = kv.k,     [ATTEND_V] = kv.v,
        [ATTEND_O] = r->o_sum, [ATTEND_LSE] = r->lse,
    };
    int count = ring_slices(r, forward_source(r, step));
    builder_attend_forward(r->b, operand, r->slices, count);
}

// What the LSE is now, for the mutation that lets backward read it too early.
static struct region lse_copy(struct ring *r)
{
    struct region copy = whole(r, "lse_partial", BUFFER_SCRATCH, r->lse.bytes);
    builder_fill(r->b, copy, 0);
    builder_add(r->b, r->lse, copy);
    return copy;
}

static void forward(struct ring *r)
{
    for (int step = 0; step < r->size; step++) {
        builder_step(r->b, PHASE_FORWARD, step);
        if (step + 1 < r->size)
            forward_exchange(r, step);
        if (step == 0) {
            builder_fill(r->b, r->o_sum, 0);
            builder_fill(r->b, r->lse, -INFINITY);
        }
        forward_attend(r, step);
        if (MUTATED(LSE_PARTIAL) && step == 0)
            r->lse_seen = lse_copy(r);
    }
    builder_convert(r->b, r->o_sum, r->out);
}

// ---- backward ----

static int backward_source(const struct ring *r, int step)
{
    return (r->rank + 1 + step) % r->size;
}

static struct pair backward_kv(const struct ring *r, int step)
{
    int32_t buffer = step == r->size - 1 ? r->kv : r->slot[(r->size - 2 + step) % 2];
    return pair_of(r, buffer, backward_source(r, step), case_element_bytes(r->c));
}

// The step's own part of dK, dV, and after its addition the sum so far.
static struct pair backward_part(const struct ring *r, int step)
{
    return pair_of(r, r->part[step % 2], backward_source(r, step), 4);
}

static struct region backward_arrived(const struct ring *r, int step)
{
    return pair_of(r, r->arrived, backward_source(r, step), 4).both;
}

// The next KV comes in, and the sum for the KV that is being attended.
static void backward_exchange(struct ring *r, int step)
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
        bool stays = MUTATED(DK_WRONG_OWNER) && step + 1 == r->size;
        transfers[count++] = (struct transfer){.peer = stays ? r->rank : r->previous,
                                               .send = backward_part(r, step - 1).both};
        transfers[count++] = (struct transfer){.peer = stays ? r->rank : r->next,
                                               .receive = backward_arrived(r, step)};
    }
    if (count > 0)
        builder_exchange(r->b, transfers, count);
}

static void backward_attend(struct ring *r, int step)
{
    struct pair kv = backward_kv(r, step), part = backward_part(r, step);
    const struct region operand[OPERANDS_MAX] = {
        [ATTEND_Q] = r->q,          [ATTEND_K] = kv.k,      [ATTEND_V] = kv.v,
        [ATTEND_LSE] = r->lse_seen, [ATTEND_DO] = r->d_out, [ATTEND_D] = r->d,
        [ATTEND_DQ] = r->dq_sum,    [ATTEND_DK] = part.k,   [ATTEND_DV] = part.v,
    };
    int count = ring_slices(r, backward_source(r, step));
    builder_attend_backward(r->b, operand, r->slices, count);
}

static void backward(struct ring *r)
{
    builder_step(r->b, PHASE_BACKWARD, 0);
    builder_row_dot(r->b, r->d_out, r->o_sum, r->d);
    builder_fill(r->b, r->dq_sum, 0);
    for (int step = 0; step < r->size; step++) {
        builder_step(r->b, PHASE_BACKWARD, step);
        backward_exchange(r, step);
        if (MUTATED(DROP_DQ_STEP) && step == 1)
            builder_fill(r->b, r->dq_sum, 0);
        struct region part = backward_part(r, step).both;
        builder_fill(r->b, part, 0);
        backward_attend(r, step);
        if (step > 0 && !(MUTATED(DROP_DKV_ADD) && step == 1))
            builder_add(r->b, backward_arrived(r, step), part);
    }
    builder_convert(r->b, r->dq_sum, r->dq);
    builder_convert(r->b, backward_part(r, r->size - 1).both,
                    pair_of(r, r->dkv, r->rank, case_element_bytes(r->c)).both);
}

void ring_build(struct builder *b)
{
    struct ring r;
    if (!ring_init(&r, b))
        return;
    forward(&r);
    if (r.c->training)
        backward(&r);
}
