// SPDX-License-Identifier: Apache-2.0
// Errors in what rows begin with, and in sinks, bias and the largest logit.
#include <math.h>

#include "tests/mutations/changes.h"
#include "tests/mutations/edit.h"

// ---- what rows begin with ----

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

// All that match begin with `value` instead of what they should.
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
