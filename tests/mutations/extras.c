// SPDX-License-Identifier: Apache-2.0
// Errors in the initial values of rows, and in sinks, bias and the largest logit.
#include <math.h>

#include "tests/mutations/changes.h"
#include "tests/mutations/edit.h"

// ---- initial values of rows ----

static bool fills(const struct plan *plan, const struct op *op, const char *name)
{
    return (op->kind == OP_FILL || op->kind == OP_FILL_HEADS) &&
           edit_is(plan, &op->operand[UNARY_DESTINATION], name);
}

static bool starts_lse(const struct plan *plan, const struct op *op)
{
    return fills(plan, op, "lse") || fills(plan, op, "lse_team");
}

static bool starts_out(const struct plan *plan, const struct op *op)
{
    return fills(plan, op, "o_sum");
}

// Makes all matching fills use `value`. False if nothing changes.
static bool start_with(struct plan *plan, match_fn *match, float value)
{
    bool any = false;
    for (int32_t i = edit_find(plan, match, 0); i >= 0; i = edit_find(plan, match, i + 1)) {
        struct op *op = &plan->ops[i];
        any = any || op->kind != OP_FILL || op->value != value;
        *op = edit_fill(op, op->operand[UNARY_DESTINATION], value);
    }
    return any;
}

bool sink_dropped(struct plan *plan)
{
    return start_with(plan, starts_lse, -INFINITY);
}

bool empty_row_finite(struct plan *plan)
{
    return plan->c.softmax == SOFTMAX_VANILLA && start_with(plan, starts_lse, -1e30F);
}

bool padding_not_zero(struct plan *plan)
{
    return start_with(plan, starts_out, 1e-3F);
}

// ---- sums and maxima over ranks ----

static bool is_combined(const struct plan *plan, const struct op *op, const char *all)
{
    return (op->kind == OP_ADD || op->kind == OP_MAX) &&
           edit_is(plan, &op->operand[UNARY_SOURCE], all);
}

static bool comes_from_rank_0(const struct plan *plan, const struct op *op)
{
    return (is_combined(plan, op, "dsink_all") || is_combined(plan, op, "max_all")) &&
           op->operand[UNARY_SOURCE].offset == 0;
}

bool sum_drops_rank(struct plan *plan)
{
    return edit_drop_all(plan, comes_from_rank_0);
}

static bool is_maximum_of_others(const struct plan *plan, const struct op *op)
{
    const struct region *source = &op->operand[UNARY_SOURCE];
    return is_combined(plan, op, "max_all") && source->offset != source->bytes * plan->rank;
}

bool max_own_shard(struct plan *plan)
{
    return edit_drop_all(plan, is_maximum_of_others);
}

static bool is_sink_of_later_ranks(const struct plan *plan, const struct op *op)
{
    return is_combined(plan, op, "dsink_all") && op->operand[UNARY_SOURCE].offset > 0;
}

bool sink_grad_one_rank(struct plan *plan)
{
    return edit_drop_all(plan, is_sink_of_later_ranks);
}

static bool is_first_part_of_dbias(const struct plan *plan, const struct op *op)
{
    return is_combined(plan, op, "dbias_all") && op->operand[UNARY_SOURCE].offset == 0;
}

bool dbias_drops_rank(struct plan *plan)
{
    return edit_drop_all(plan, is_first_part_of_dbias);
}

// ---- the bias ----

static bool is_remote_with_dbias(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_ATTEND_BACKWARD && edit_is_remote(plan, op) &&
           op->operand[ATTEND_DBIAS].bytes > 0;
}

bool dbias_step_lost(struct plan *plan)
{
    bool any = false;
    for (int32_t i = edit_find(plan, is_remote_with_dbias, 0); i >= 0;
         i = edit_find(plan, is_remote_with_dbias, i + 1)) {
        plan->ops[i].operand[ATTEND_DBIAS].bytes = 0;
        any = true;
    }
    return any;
}

// ---- rows that see nothing ----

bool masked_rank_nan(struct plan *plan)
{
    return start_with(plan, starts_out, NAN);
}

static bool attends_forward(const struct plan *plan, const struct op *op)
{
    (void)plan;
    return op->kind == OP_ATTEND_FORWARD;
}

static bool delivers(const struct plan *plan, const struct op *op, enum buffer_role role)
{
    const struct region *to = &op->operand[UNARY_DESTINATION];
    return op->kind == OP_CONVERT && to->bytes > 0 && plan->buffers[to->buffer].role == role;
}

static bool delivers_out(const struct plan *plan, const struct op *op)
{
    return delivers(plan, op, BUFFER_OUT);
}

// A rank without work does not write its output.
bool masked_rank_unwritten(struct plan *plan)
{
    return edit_find(plan, attends_forward, 0) < 0 && edit_drop_all(plan, delivers_out);
}

bool lse_unstarted(struct plan *plan)
{
    return edit_drop_all(plan, starts_lse);
}

// True if query i, or key j, of a sequence has any visible pair.
static bool query_sees(const struct cp_case *c, int32_t sequence, int64_t i)
{
    struct case_band band = case_band(c, sequence);
    for (int64_t j = 0; j < case_length(c, SIDE_KV, sequence); j++)
        if (j - i + band.shift >= -band.left && j - i + band.shift <= band.right)
            return true;
    return false;
}

static bool key_is_seen(const struct cp_case *c, int32_t sequence, int64_t j)
{
    struct case_band band = case_band(c, sequence);
    for (int64_t i = 0; i < case_length(c, SIDE_Q, sequence); i++)
        if (j - i + band.shift >= -band.left && j - i + band.shift <= band.right)
            return true;
    return false;
}

// The first row of the rank without a visible pair; -1: none.
static int64_t lonely_row(const struct plan *plan, enum shard_side side)
{
    const struct cp_case *c = &plan->c;
    struct span spans[2 * SEQUENCES_MAX];
    int count = shard_spans(c, side, plan->rank, spans);
    for (int n = 0; n < count; n++)
        for (int64_t t = 0; t < spans[n].len; t++) {
            int64_t position = spans[n].position + t;
            bool met = side == SIDE_Q ? query_sees(c, spans[n].sequence, position)
                                      : key_is_seen(c, spans[n].sequence, position);
            if (!met)
                return spans[n].row + t * shard_row_step(c);
        }
    return -1;
}

static bool delivers_dq(const struct plan *plan, const struct op *op)
{
    return delivers(plan, op, BUFFER_DQ);
}

static bool delivers_dkv(const struct plan *plan, const struct op *op)
{
    return delivers(plan, op, BUFFER_DKV);
}

// Sets a row of the sum that must be zero to 1e-3 before the sum is delivered. In the sum of dK and
// dV the rows of dK come first.
static bool lonely_gradient(struct plan *plan, match_fn *match, enum shard_side side)
{
    const struct cp_case *c = &plan->c;
    int32_t end = edit_find(plan, match, 0);
    int64_t row = lonely_row(plan, side);
    int64_t heads = side == SIDE_Q ? c->heads : c->kv_heads, bytes = heads * c->head_dim_qk * 4;
    if (end < 0 || row < 0 || team_size(c) > 1)
        return false;
    struct region sum = plan->ops[end].operand[UNARY_SOURCE];
    edit_insert(plan, end, edit_fill(&plan->ops[end], region_part(sum, row * bytes, bytes), 1e-3F));
    return true;
}

bool empty_row_dq(struct plan *plan)
{
    return lonely_gradient(plan, delivers_dq, SIDE_Q);
}

bool unseen_key_dk(struct plan *plan)
{
    return lonely_gradient(plan, delivers_dkv, SIDE_KV);
}

// ---- the denominator ----

bool off_by_one_dropped(struct plan *plan)
{
    return plan->c.softmax == SOFTMAX_OFF_BY_ONE && start_with(plan, starts_lse, -INFINITY);
}

static bool is_backward(const struct plan *plan, const struct op *op)
{
    (void)plan;
    return op->phase == PHASE_BACKWARD;
}

// Adds ln 2 to a region after operation `at`.
static void add_ln2(struct plan *plan, int32_t at, struct region region)
{
    struct op like = plan->ops[at];
    struct region more = edit_buffer(plan, "ln2", region.bytes);
    edit_insert(plan, at + 1, edit_fill(&like, more, (float)M_LN2));
    edit_insert(plan, at + 2, edit_add(&like, more, region));
}

static bool starts_with_sinks(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_FILL_HEADS && starts_lse(plan, op);
}

bool sink_twice(struct plan *plan)
{
    bool any = false;
    for (int32_t i = edit_find(plan, starts_with_sinks, 0); i >= 0;
         i = edit_find(plan, starts_with_sinks, i + 1)) {
        add_ln2(plan, i, plan->ops[i].operand[UNARY_DESTINATION]);
        any = true;
    }
    return any;
}

// Adds ln 2 before the backward pass reads the LSE: each weight is half of what it should be.
bool lse_too_large(struct plan *plan)
{
    int32_t start = edit_find(plan, starts_lse, 0), begin = edit_find(plan, is_backward, 0);
    if (start < 0 || begin < 0 ||
        !edit_is(plan, &plan->ops[start].operand[UNARY_DESTINATION], "lse"))
        return false;
    add_ln2(plan, begin - 1, plan->ops[start].operand[UNARY_DESTINATION]);
    return true;
}

// ---- sums that are repeated or lost ----

// Repeats each addition from this buffer.
static bool add_twice(struct plan *plan, const char *all)
{
    bool any = false;
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == OP_ADD && is_combined(plan, &plan->ops[i], all)) {
            edit_insert(plan, i, plan->ops[i]);
            i++;
            any = true;
        }
    return any;
}

bool sink_grad_twice(struct plan *plan)
{
    return add_twice(plan, "dsink_all");
}

bool dbias_twice(struct plan *plan)
{
    return add_twice(plan, "dbias_all");
}

static bool delivers_dbias(const struct plan *plan, const struct op *op)
{
    return delivers(plan, op, BUFFER_DBIAS);
}

bool dbias_two_zeroed(struct plan *plan)
{
    int32_t end = edit_find(plan, delivers_dbias, 0);
    if (end < 0 || plan->ops[end].operand[UNARY_SOURCE].bytes < 8)
        return false;
    struct region sum = plan->ops[end].operand[UNARY_SOURCE];
    edit_insert(plan, end, edit_fill(&plan->ops[end], region_part(sum, 0, 8), 0));
    return true;
}

bool max_step_lost(struct plan *plan)
{
    bool any = false;
    for (int32_t i = edit_find(plan, attends_forward, 0); i >= 0;
         i = edit_find(plan, attends_forward, i + 1)) {
        struct region *maximum = &plan->ops[i].operand[ATTEND_MAX];
        if (maximum->bytes == 0 || !edit_is_remote(plan, &plan->ops[i]))
            continue;
        maximum->bytes = 0;
        any = true;
    }
    return any;
}
