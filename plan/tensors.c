// SPDX-License-Identifier: Apache-2.0
#include "plan/tensors.h"

#include <math.h>

#include "plan/bias_grad.h"

int64_t pair_bytes(const struct cp_case *c, int64_t rows, int kv_heads, int element)
{
    return rows * kv_heads * (c->head_dim_qk + c->head_dim_v) * element;
}

struct pair pair_of(const struct cp_case *c, int32_t buffer, int64_t rows, int kv_heads,
                    int element)
{
    int64_t both = pair_bytes(c, rows, kv_heads, element);
    int64_t k = rows * kv_heads * c->head_dim_qk * element;
    return (struct pair){.k = {.buffer = buffer, .bytes = k},
                         .v = {.buffer = buffer, .offset = k, .bytes = both - k},
                         .both = {.buffer = buffer, .bytes = both}};
}

int32_t tensor_buffer(struct builder *b, const char *name, const char *suffix,
                      enum buffer_role role, int64_t bytes)
{
    char text[sizeof((struct plan_buffer *)NULL)->name];
    snprintf(text, sizeof text, "%s%s", name, suffix);
    return builder_buffer(b, text, role, bytes);
}

struct region tensor_whole(struct builder *b, const char *name, const char *suffix,
                           enum buffer_role role, int64_t bytes)
{
    return (struct region){.buffer = tensor_buffer(b, name, suffix, role, bytes), .bytes = bytes};
}

static struct pair key_tensor(const struct tensors *t, struct builder *b, const char *name,
                              enum buffer_role role)
{
    const struct cp_case *c = builder_case(b);
    int element = case_element_bytes(c);
    int64_t bytes = pair_bytes(c, t->kv_rows, c->kv_heads, element);
    int32_t buffer = tensor_buffer(b, name, "", role, bytes);
    return pair_of(c, buffer, t->kv_rows, c->kv_heads, element);
}

// Tensors of one number per head.
static void head_tensors(struct tensors *t, struct builder *b)
{
    const struct cp_case *c = builder_case(b);
    int64_t bytes = c->heads * 4;
    if (c->max_logit) {
        t->max_logit = tensor_whole(b, "max_logit", "", BUFFER_MAX_LOGIT, bytes);
        t->max_logit_part = tensor_whole(b, "max_part", "", BUFFER_SCRATCH, bytes);
    }
    if (c->softmax != SOFTMAX_LEARNABLE)
        return;
    t->sink = tensor_whole(b, "sink", "", BUFFER_INPUT_SINK, bytes);
    if (c->training) {
        t->dsink = tensor_whole(b, "dsink", "", BUFFER_DSINK, bytes);
        t->dsink_part = tensor_whole(b, "dsink_part", "", BUFFER_SCRATCH, bytes);
    }
}

static void bias_tensors(struct tensors *t, struct builder *b)
{
    const struct cp_case *c = builder_case(b);
    struct bias_shape shape = bias_shape(c, builder_rank(b));
    int element = case_element_bytes(c);
    int64_t head = shape.rows * shape.columns, heads = shape.heads;
    if (c->bias == BIAS_NONE)
        return;
    t->bias = tensor_whole(b, "bias", "", BUFFER_INPUT_BIAS, heads * head * element);
    if (!c->training)
        return;
    if (bias_is_whole(c))
        heads = bias_has_heads(c) ? c->heads : 1;
    t->dbias =
        tensor_whole(b, "dbias", "", BUFFER_DBIAS, bias_share(c, builder_rank(b)).count * element);
    t->dbias_part = tensor_whole(b, "dbias_part", "", BUFFER_SCRATCH, heads * head * 4);
}

void tensors_init(struct tensors *t, struct builder *b)
{
    const struct cp_case *c = builder_case(b);
    int rank = builder_rank(b), element = case_element_bytes(c);
    *t = (struct tensors){.q_rows = shard_rows(c, SIDE_Q, rank),
                          .kv_rows = shard_rows(c, SIDE_KV, rank)};
    int64_t q = t->q_rows * c->heads;
    t->q = tensor_whole(b, "q", "", BUFFER_INPUT_Q, q * c->head_dim_qk * element);
    t->kv = key_tensor(t, b, "kv", BUFFER_INPUT_KV);
    t->out = tensor_whole(b, "out", "", BUFFER_OUT, q * c->head_dim_v * element);
    t->lse = tensor_whole(b, "lse", "", BUFFER_LSE, q * 4);
    head_tensors(t, b);
    bias_tensors(t, b);
    if (!c->training)
        return;
    t->d_out = tensor_whole(b, "dout", "", BUFFER_INPUT_DO, q * c->head_dim_v * element);
    t->dq = tensor_whole(b, "dq", "", BUFFER_DQ, q * c->head_dim_qk * element);
    t->dkv = key_tensor(t, b, "dkv", BUFFER_DKV);
}

struct region tensor_heads(struct region tensor, struct heads heads)
{
    if (tensor.bytes == 0)
        return tensor;
    return region_part(tensor, heads.first * 4, heads.count * 4);
}

void tensors_begin(const struct tensors *t, struct builder *b, enum plan_phase phase)
{
    if (phase == PHASE_FORWARD) {
        builder_fill(b, t->max_logit_part, -INFINITY);
        return;
    }
    builder_fill(b, t->dsink_part, 0);
    builder_fill(b, t->dbias_part, 0);
}

typedef void combine_fn(struct builder *b, struct region source, struct region destination);

// Every rank sends its part to all others and combines what it receives.
static void reduce(struct builder *b, const char *name, struct region part, struct region result,
                   float start, combine_fn *combine)
{
    int size = builder_case(b)->world_size, rank = builder_rank(b);
    struct transfer transfers[WORLD_SIZE_MAX];
    struct region parts = tensor_whole(b, name, "_all", BUFFER_SCRATCH, part.bytes * size);
    for (int peer = 0; peer < size; peer++) {
        transfers[(peer - rank + size) % size] =
            (struct transfer){.peer = peer,
                              .send = part,
                              .receive = region_part(parts, part.bytes * peer, part.bytes)};
    }
    builder_exchange(b, transfers, size);
    builder_fill(b, result, start);
    for (int peer = 0; peer < size; peer++)
        combine(b, transfers[(peer - rank + size) % size].receive, result);
}

void tensors_reduce(const struct tensors *t, struct builder *b, enum plan_phase phase)
{
    if (phase == PHASE_FORWARD && t->max_logit.bytes > 0)
        reduce(b, "max", t->max_logit_part, t->max_logit, -INFINITY, builder_max);
    if (phase == PHASE_BACKWARD && t->dsink.bytes > 0)
        reduce(b, "dsink", t->dsink_part, t->dsink, 0, builder_add);
    if (phase == PHASE_BACKWARD && builder_case(b)->bias != BIAS_NONE)
        bias_grad_deliver(b, t->dbias_part, t->dbias);
}
