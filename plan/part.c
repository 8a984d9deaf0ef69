// SPDX-License-Identifier: Apache-2.0
#include "plan/part.h"

#include <math.h>

#include "plan/bias.h"
#include "plan/team_order.h"
#include "plan/tiling.h"

int32_t part_key_buffer(const struct part *p, const char *name, const char *suffix, int64_t rows,
                        int element)
{
    return tensor_buffer(p->b, name, suffix, BUFFER_SCRATCH,
                         pair_bytes(p->c, rows, p->heads.kv_count, element));
}

struct pair part_keys(const struct part *p, int32_t buffer, int64_t rows, int element)
{
    return pair_of(p->c, buffer, rows, p->heads.kv_count, element);
}

static struct region scratch(struct part *p, const char *name, const char *suffix, int64_t bytes)
{
    return tensor_whole(p->b, name, suffix, BUFFER_SCRATCH, bytes);
}

// The part's heads in a bias or its gradient; `first`: the head of the case with which the tensor
// begins.
static struct region bias_heads(const struct part *p, struct region tensor, int first, int element)
{
    int64_t head_bytes = p->bias_rows * p->c->seqlen_kv * element;
    if (tensor.bytes == 0 || !bias_has_heads(p->c))
        return tensor;
    return region_part(tensor, (p->heads.first - first) * head_bytes, p->heads.count * head_bytes);
}

static void part_bias(struct part *p, const struct tensors *t)
{
    int held = bias_shape(p->c, builder_rank(p->b)).head_first;
    p->bias_rows = bias_rows(p->c, p->team);
    p->bias = bias_heads(p, t->bias, held, case_element_bytes(p->c));
    p->dbias = bias_heads(p, t->dbias_part, bias_is_whole(p->c) ? 0 : held, 4);
}

// Upper bound of the slices of the part's queries with the keys of a team of this size; at least
// the number of query spans, for sink_gradient().
static size_t slices_max(const struct part *p)
{
    int64_t count = team_slices_bound(p->c, p->team.size);
    return (size_t)(count > p->q_span_count ? count : p->q_span_count) + 1;
}

static bool part_init(struct part *p, struct builder *b, const struct tensors *t, struct team team,
                      struct heads heads, const char *suffix)
{
    const struct cp_case *c = builder_case(b);
    *p = (struct part){.b = b, .c = c, .team = team, .heads = heads, .slice_count = -1};
    p->q_rows = team_rows(c, SIDE_Q, team);
    p->sink = tensor_heads(t->sink, heads);
    p->dsink = tensor_heads(t->dsink_part, heads);
    p->max_logit = tensor_heads(t->max_logit_part, heads);
    part_bias(p, t);
    int64_t rows = p->q_rows * heads.count;
    p->o_sum = scratch(p, "o_sum", suffix, rows * c->head_dim_v * 4);
    if (c->training) {
        p->d = scratch(p, "d", suffix, rows * 4);
        p->dq_sum = scratch(p, "dq_sum", suffix, rows * c->head_dim_qk * 4);
    }
    size_t spans = (size_t)team.size * (size_t)shard_spans_max(c);
    p->q_spans = builder_alloc(b, spans, sizeof *p->q_spans);
    p->kv_spans = builder_alloc(b, spans, sizeof *p->kv_spans);
    if (!p->q_spans || !p->kv_spans)
        return false;
    p->q_span_count = team_spans(c, SIDE_Q, team, p->q_spans);
    p->slices = builder_alloc(b, slices_max(p), sizeof *p->slices);
    return p->slices != NULL;
}

bool part_init_own(struct part *p, struct builder *b, const struct tensors *t)
{
    const struct cp_case *c = builder_case(b);
    if (!part_init(p, b, t, team_of(builder_rank(b), 1), team_heads(c, 1, 0), ""))
        return false;
    p->q = t->q;
    p->d_out = t->d_out;
    p->lse = t->lse;
    return true;
}

bool part_init_team(struct part *p, struct builder *b, const struct tensors *t, struct team team,
                    struct heads heads, const char *suffix)
{
    const struct cp_case *c = builder_case(b);
    if (!part_init(p, b, t, team, heads, suffix))
        return false;
    int64_t rows = p->q_rows * heads.count;
    int element = case_element_bytes(c);
    p->q = scratch(p, "q_team", suffix, rows * c->head_dim_qk * element);
    p->lse = scratch(p, "lse_team", suffix, rows * 4);
    if (c->training)
        p->d_out = scratch(p, "dout_team", suffix, rows * c->head_dim_v * element);
    return true;
}

// Makes the slices of the queries with the keys of `source`, and returns their number. Slices of
// the same source as in the last call are reused: every algorithm with many slices begins its
// backward with the source that its forward ended with.
static int part_slices(struct part *p, struct team source)
{
    const struct cp_case *c = p->c;
    if (p->heads.count == 0)
        return 0;
    if (p->slice_count >= 0 && p->slice_source == source.first)
        return p->slice_count;
    int count = team_spans(c, SIDE_KV, source, p->kv_spans);
    count = tiling_build(c, p->q_spans, p->q_span_count, p->kv_spans, count, 0, p->slices);
    p->slice_source = source.first;
    p->slice_count = count;
    return count;
}

void part_forward_begin(struct part *p)
{
    // With LSE = -inf the first merge replaces O.
    builder_fill(p->b, p->o_sum, 0);
    switch (p->c->softmax) {
    case SOFTMAX_LEARNABLE:
        builder_fill_heads(p->b, p->heads, p->q_rows, p->sink, p->lse);
        break;
    case SOFTMAX_OFF_BY_ONE:
        builder_fill(p->b, p->lse, 0);
        break;
    case SOFTMAX_VANILLA:
        builder_fill(p->b, p->lse, -INFINITY);
        break;
    }
}

void part_forward(struct part *p, struct pair kv, struct team source)
{
    const struct region operand[OPERANDS_MAX] = {
        [ATTEND_Q] = p->q,       [ATTEND_K] = kv.k,     [ATTEND_V] = kv.v,
        [ATTEND_O] = p->o_sum,   [ATTEND_LSE] = p->lse, [ATTEND_MAX] = p->max_logit,
        [ATTEND_BIAS] = p->bias,
    };
    int count = part_slices(p, source);
    builder_attend(p->b, OP_ATTEND_FORWARD, p->heads, p->q_rows, p->bias_rows, operand, p->slices,
                   count);
}

static void sink_gradient(struct part *p)
{
    const struct region operand[OPERANDS_MAX] = {
        [SINK_GRAD_SINK] = p->sink,
        [SINK_GRAD_LSE] = p->lse,
        [SINK_GRAD_D] = p->d,
        [SINK_GRAD_DSINK] = p->dsink,
    };
    p->slice_count = -1;
    for (int i = 0; i < p->q_span_count; i++)
        p->slices[i] = (struct slice){.q_row = p->q_spans[i].row, .q_len = p->q_spans[i].len};
    builder_sink_grad(p->b, p->heads, p->q_rows, operand, p->slices, p->q_span_count);
}

void part_backward_begin(struct part *p)
{
    builder_row_dot(p->b, p->heads, p->q_rows, p->d_out, p->o_sum, p->d);
    if (p->dsink.bytes > 0)
        sink_gradient(p);
    builder_fill(p->b, p->dq_sum, 0);
}

void part_backward(struct part *p, struct pair kv, struct pair dkv, struct team source)
{
    const struct region operand[OPERANDS_MAX] = {
        [ATTEND_Q] = p->q,       [ATTEND_K] = kv.k,         [ATTEND_V] = kv.v,
        [ATTEND_LSE] = p->lse,   [ATTEND_DO] = p->d_out,    [ATTEND_D] = p->d,
        [ATTEND_DQ] = p->dq_sum, [ATTEND_DK] = dkv.k,       [ATTEND_DV] = dkv.v,
        [ATTEND_BIAS] = p->bias, [ATTEND_DBIAS] = p->dbias,
    };
    int count = part_slices(p, source);
    builder_attend(p->b, OP_ATTEND_BACKWARD, p->heads, p->q_rows, p->bias_rows, operand, p->slices,
                   count);
}
