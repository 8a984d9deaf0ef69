// SPDX-License-Identifier: Apache-2.0
// Errors in what is computed in the steps of an algorithm.
#include <math.h>
#include <string.h>

#include "tests/mutations/changes.h"
#include "tests/mutations/edit.h"

// ---- who is who ----

static bool is_forward_step_1(const struct plan *plan, const struct op *op)
{
    return edit_is_ring(plan) && op->kind == OP_ATTEND_FORWARD && op->step == 1;
}

static bool is_own_forward(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_ATTEND_FORWARD && !edit_is_remote(plan, op);
}

static bool adds_from(const struct plan *plan, const struct op *op, const char *name)
{
    return op->kind == OP_ADD && edit_is(plan, &op->operand[UNARY_SOURCE], name);
}

static bool adds_arrived_at_step_1(const struct plan *plan, const struct op *op)
{
    return adds_from(plan, op, "dkv_arrived") && op->step == 1;
}

static bool adds_part_of_rank_1(const struct plan *plan, const struct op *op)
{
    return adds_from(plan, op, "dkv_home1");
}

static bool adds_part_of_member_1(const struct plan *plan, const struct op *op)
{
    return adds_from(plan, op, "home1");
}

static bool starts_dq(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_FILL && edit_is(plan, &op->operand[UNARY_DESTINATION], "dq_sum");
}

// ---- forward ----

bool drop_step(struct plan *plan)
{
    return edit_drop_all(plan, is_forward_step_1);
}

bool stale_slot(struct plan *plan)
{
    int32_t op = edit_find(plan, is_forward_step_1, 0);
    int32_t before = edit_find(plan, is_own_forward, 0);
    if (op < 0 || before < 0)
        return false;
    plan->ops[op].operand[ATTEND_K] = plan->ops[before].operand[ATTEND_K];
    plan->ops[op].operand[ATTEND_V] = plan->ops[before].operand[ATTEND_V];
    return true;
}

// ---- backward ----

// Before the backward attention of step 1 what dQ has so far is overwritten.
static bool is_backward_step_1(const struct plan *plan, const struct op *op)
{
    return edit_is_ring(plan) && op->kind == OP_ATTEND_BACKWARD && op->step == 1;
}

bool drop_dq_step(struct plan *plan)
{
    int32_t op = edit_find(plan, is_backward_step_1, 0), fill = edit_find(plan, starts_dq, 0);
    if (op < 0 || fill < 0)
        return false;
    struct region sum = plan->ops[fill].operand[UNARY_DESTINATION];
    edit_insert(plan, op, edit_fill(&plan->ops[op], sum, 0));
    return true;
}

bool stale_sum(struct plan *plan)
{
    return edit_drop_all(plan, starts_dq);
}

bool drop_dkv_add(struct plan *plan)
{
    return edit_drop_all(plan, adds_arrived_at_step_1);
}

// The first halves of dK and of dV, which lie one behind the other.
bool hop_drops_chunk(struct plan *plan)
{
    int32_t at = edit_find(plan, adds_arrived_at_step_1, 0);
    if (at < 0)
        return false;
    struct op *add = &plan->ops[at];
    struct region from = add->operand[UNARY_SOURCE], to = add->operand[UNARY_DESTINATION];
    const struct cp_case *c = &plan->c;
    int64_t k = from.bytes / (c->head_dim_qk + c->head_dim_v) * c->head_dim_qk;
    int64_t v = from.bytes - k, k_half = k / 8 * 4, v_half = v / 8 * 4;
    add->operand[UNARY_SOURCE].bytes = add->operand[UNARY_DESTINATION].bytes = k_half;
    edit_insert(plan, at + 1,
                edit_add(add, region_part(from, k, v_half), region_part(to, k, v_half)));
    return true;
}

// Backward reads copies of what the LSE was after the own keys.
bool lse_partial(struct plan *plan)
{
    bool any = false;
    for (int32_t i = edit_find(plan, is_own_forward, 0); i >= 0;
         i = edit_find(plan, is_own_forward, i + 1)) {
        struct region lse = plan->ops[i].operand[ATTEND_LSE];
        struct region copy = edit_buffer(plan, "lse_partial", lse.bytes);
        for (int32_t k = i; k < plan->op_count; k++)
            if (plan->ops[k].kind == OP_ATTEND_BACKWARD &&
                plan->ops[k].operand[ATTEND_LSE].buffer == lse.buffer)
                plan->ops[k].operand[ATTEND_LSE] = copy;
        edit_insert(plan, i + 1, edit_fill(&plan->ops[i], copy, 0));
        edit_insert(plan, i + 2, edit_add(&plan->ops[i], lse, copy));
        any = true;
    }
    return any;
}

// ---- dK and dV of several ranks ----

bool gather_drop_part(struct plan *plan)
{
    return edit_drop_all(plan, adds_part_of_rank_1);
}

static bool adds_part(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_ADD && edit_begins(plan, &op->operand[UNARY_SOURCE], "dkv_home");
}

// Every other plan of a process has them the other way round.
bool adds_change_places(struct plan *plan)
{
    static unsigned int turns;
    int32_t first = edit_find(plan, adds_part, 0), last = edit_find_last(plan, adds_part);
    if (first == last || turns++ % 2 != 0)
        return false;
    for (; first < last; first++, last--) {
        struct region source = plan->ops[first].operand[UNARY_SOURCE];
        plan->ops[first].operand[UNARY_SOURCE] = plan->ops[last].operand[UNARY_SOURCE];
        plan->ops[last].operand[UNARY_SOURCE] = source;
    }
    return true;
}

bool a2a_drop_member(struct plan *plan)
{
    return edit_drop_all(plan, adds_part_of_member_1);
}

// Of dK and of dV each; they are added in turn.
static bool adds_home(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_ADD && edit_begins(plan, &op->operand[UNARY_SOURCE], "home");
}

static bool same_region(const struct region *a, const struct region *b)
{
    return a->buffer == b->buffer && a->offset == b->offset;
}

bool replicated_kv_lost(struct plan *plan)
{
    struct region last[2] = {{.buffer = -1}, {.buffer = -1}};
    bool any = false;
    for (int32_t i = edit_find(plan, adds_home, 0), n = 0; i >= 0;
         i = edit_find(plan, adds_home, i + 1), n++) {
        struct region to = plan->ops[i].operand[UNARY_DESTINATION];
        if (same_region(&to, &last[n % 2])) {
            edit_drop(&plan->ops[i]);
            any = true;
        }
        last[n % 2] = to;
    }
    return any;
}
