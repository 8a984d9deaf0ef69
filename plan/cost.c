// SPDX-License-Identifier: Apache-2.0
#include "plan/cost.h"

#include "plan/slice.h"

// Lower bound of the cost of a sample: half of one rank's work.
#define COST_SAMPLE_LEAST 2e11

_Static_assert(SEQLEN_MAX <= INT64_MAX / BATCH_MAX / SEQLEN_MAX, "the pairs of a case are counted");

static int64_t sequence_pairs(const struct cp_case *c, int32_t sequence)
{
    struct case_band band = case_band(c, sequence);
    struct slice whole = {.q_len = case_length(c, SIDE_Q, sequence),
                          .kv_len = case_length(c, SIDE_KV, sequence),
                          .offset = band.shift,
                          .left = band.left,
                          .right = band.right};
    return slice_pairs(&whole);
}

int64_t cost_pairs(const struct cp_case *c)
{
    int64_t pairs = 0;
    if (case_is_even(c, SIDE_Q) && case_is_even(c, SIDE_KV))
        return c->batch * sequence_pairs(c, 0);
    for (int32_t i = 0; i < c->batch; i++)
        pairs += sequence_pairs(c, i);
    return pairs;
}

double cost_forward(const struct cp_case *c, double pairs)
{
    return 2 * pairs * (c->head_dim_qk + c->head_dim_v);
}

double cost_backward(const struct cp_case *c, double pairs)
{
    return 2 * pairs * (3 * c->head_dim_qk + 2 * c->head_dim_v);
}

// The CPU reference computes O (QK', PV), dQ from the same probabilities (dO V', dS K), then
// recomputes the probabilities for dK and dV (QK', dO V', P'dO, dS'Q). The GPU reference computes
// QK' and dO V' for each result.
//
// With `verify: auto` only a sample may be judged (judge/tiles.h). A sample costs at least
// COST_SAMPLE_LEAST.
static double cost_reference(const struct cp_case *c, double pairs)
{
    double out = 2 * pairs * (c->head_dim_qk + c->head_dim_v);
    double all = c->training ? 4 * out : out;
    return c->verify == VERIFY_AUTO && all > COST_SAMPLE_LEAST ? COST_SAMPLE_LEAST : all;
}

static double side_tokens(const struct cp_case *c, enum shard_side side)
{
    int64_t tokens = 0;
    if (case_is_even(c, side))
        return (double)c->batch * (double)case_length(c, side, 0);
    for (int32_t i = 0; i < c->batch; i++)
        tokens += case_length(c, side, i);
    return (double)tokens;
}

static double cost_drawn(const struct cp_case *c)
{
    double query = c->head_dim_qk + (c->training ? c->head_dim_v : 0);
    double key = c->head_dim_qk + c->head_dim_v;
    return side_tokens(c, SIDE_Q) * c->heads * query + side_tokens(c, SIDE_KV) * c->kv_heads * key;
}

void case_cost(const struct cp_case *c, struct case_cost *cost)
{
    double pairs = (double)cost_pairs(c) * c->heads;
    *cost = (struct case_cost){
        .drawn = cost_drawn(c),
        .forward = cost_forward(c, pairs),
        .backward = c->training ? cost_backward(c, pairs) : 0,
        .reference = c->verify != VERIFY_OFF ? cost_reference(c, pairs) : 0,
    };
}
