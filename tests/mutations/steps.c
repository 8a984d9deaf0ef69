// SPDX-License-Identifier: Apache-2.0
// Errors in the operations of an algorithm's steps.
#include <math.h>
#include <string.h>

#include "tests/mutations/changes.h"
#include "tests/mutations/edit.h"

// ---- which operation ----

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

static bool is_backward_step_1(const struct plan *plan, const struct op *op)
{
    return edit_is_ring(plan) && op->kind == OP_ATTEND_BACKWARD && op->step == 1;
}

// Sets dQ to zero before the backward attention of step 1.
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

// Adds only the first halves of dK and of dV.
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

// The backward pass reads a copy of the LSE that is made after the rank's own keys.
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

// Reverses the order of additions in every second plan of a process.
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

static bool converts_team(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_CONVERT && edit_begins(plan, &op->operand[UNARY_DESTINATION], "dkv_team");
}

// If members share no key head, there is no such addition. Then member 1 sends zeros.
bool a2a_drop_member(struct plan *plan)
{
    bool any = edit_drop_all(plan, adds_part_of_member_1);
    if (plan->rank % team_size(&plan->c) != 1)
        return any;
    for (int32_t i = edit_find(plan, converts_team, 0); i >= 0;
         i = edit_find(plan, converts_team, i + 2)) {
        edit_insert(plan, i, edit_fill(&plan->ops[i], plan->ops[i].operand[UNARY_SOURCE], 0));
        any = true;
    }
    return any;
}

// Such additions for dK and for dV alternate.
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

// ---- keys of another step or in another layout ----

static bool is_own_backward(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_ATTEND_BACKWARD && !edit_is_remote(plan, op);
}

static bool is_remote_backward(const struct plan *plan, const struct op *op)
{
    return op->kind == OP_ATTEND_BACKWARD && edit_is_remote(plan, op);
}

bool stale_ring_kv(struct plan *plan)
{
    int32_t own = edit_find(plan, is_own_backward, 0);
    bool any = false;
    if (own < 0 || !edit_is_ring(plan))
        return false;
    const struct region *right = plan->ops[own].operand;
    for (int32_t i = edit_find(plan, is_remote_backward, 0); i >= 0;
         i = edit_find(plan, is_remote_backward, i + 1)) {
        struct region *operand = plan->ops[i].operand;
        if (operand[ATTEND_K].bytes != right[ATTEND_K].bytes)
            continue;
        operand[ATTEND_K] = right[ATTEND_K];
        operand[ATTEND_V] = right[ATTEND_V];
        any = true;
    }
    return any;
}

// The transfers that transpose a tensor [rows][heads][width bytes] to [heads][rows][width].
static void transpose(struct plan *plan, int32_t exchange, struct region from, struct region to,
                      int64_t heads, int64_t width)
{
    int64_t rows = heads > 0 ? from.bytes / (heads * width) : 0;
    for (int64_t h = 0; h < heads && rows > 0; h++) {
        struct region column = region_part(from, h * width, width);
        column.rows = rows;
        column.stride = heads * width;
        edit_transfer(
            plan, exchange,
            (struct transfer){.peer = plan->rank,
                              .send = column,
                              .receive = region_part(to, h * rows * width, rows * width)});
    }
}

static bool is_backward(const struct plan *plan, const struct op *op)
{
    (void)plan;
    return op->phase == PHASE_BACKWARD;
}

// All ranks get the exchange, even without keys to transpose: the exchanges of ranks must match.
bool kv_transposed(struct plan *plan)
{
    int32_t begin = edit_find(plan, is_backward, 0);
    if (begin < 0)
        return false;
    edit_insert(plan, begin, edit_exchange(&plan->ops[begin]));
    int32_t own = edit_find(plan, is_own_backward, 0);
    if (own < 0)
        return true;
    const struct cp_case *c = &plan->c;
    int element = case_element_bytes(c);
    int64_t heads = plan->ops[own].heads.kv_count;
    for (int i = ATTEND_K; i <= ATTEND_V; i++) {
        struct region from = plan->ops[own].operand[i];
        struct region to = edit_buffer(plan, i == ATTEND_K ? "k_turned" : "v_turned", from.bytes);
        int dim = i == ATTEND_K ? c->head_dim_qk : c->head_dim_v;
        transpose(plan, begin, from, to, heads, dim * element);
        plan->ops[own].operand[i] = to;
    }
    return true;
}

bool v_is_k(struct plan *plan)
{
    bool any = false;
    for (int32_t i = edit_find(plan, is_remote_backward, 0); i >= 0;
         i = edit_find(plan, is_remote_backward, i + 1)) {
        struct region *operand = plan->ops[i].operand;
        if (operand[ATTEND_K].bytes != operand[ATTEND_V].bytes)
            continue;
        operand[ATTEND_V] = operand[ATTEND_K];
        any = true;
    }
    return any;
}

// ---- repeated operations ----

static bool twice(struct plan *plan, int32_t op)
{
    if (op >= 0)
        edit_insert(plan, op, plan->ops[op]);
    return op >= 0;
}

bool own_attended_twice(struct plan *plan)
{
    return twice(plan, edit_find(plan, is_own_forward, 0));
}

bool backward_step_twice(struct plan *plan)
{
    return twice(plan, edit_find(plan, is_remote_backward, 0));
}

static bool delivers_dkv(const struct plan *plan, const struct op *op)
{
    const struct region *to = &op->operand[UNARY_DESTINATION];
    return op->kind == OP_CONVERT && to->bytes > 0 && plan->buffers[to->buffer].role == BUFFER_DKV;
}

// Multiplies the sum by the number of ranks: adds a copy of it world_size - 1 times.
bool world_factor(struct plan *plan)
{
    int32_t end = edit_find(plan, delivers_dkv, 0);
    if (end < 0 || plan->c.world_size == 1)
        return false;
    struct op like = plan->ops[end];
    struct region sum = like.operand[UNARY_SOURCE];
    struct region copy = edit_buffer(plan, "dkv_once", sum.bytes);
    edit_insert(plan, end++, edit_fill(&like, copy, 0));
    edit_insert(plan, end++, edit_add(&like, sum, copy));
    for (int i = 1; i < plan->c.world_size; i++)
        edit_insert(plan, end++, edit_add(&like, copy, sum));
    return true;
}

// ---- operations moved forward ----

static bool is_forward(const struct plan *plan, const struct op *op)
{
    (void)plan;
    return op->kind == OP_ATTEND_FORWARD;
}

static bool is_row_dot(const struct plan *plan, const struct op *op)
{
    (void)plan;
    return op->kind == OP_ROW_DOT;
}

static bool delivers_out(const struct plan *plan, const struct op *op)
{
    const struct region *to = &op->operand[UNARY_DESTINATION];
    return op->kind == OP_CONVERT && to->bytes > 0 && plan->buffers[to->buffer].role == BUFFER_OUT;
}

// Moves the first matching operation before the last of the others, if that is earlier.
static bool move_before(struct plan *plan, match_fn *match, match_fn *others)
{
    int32_t from = edit_find(plan, match, 0), at = edit_find_last(plan, others);
    if (from < 0 || at < 0 || at > from)
        return false;
    edit_move(plan, from, at);
    return true;
}

bool d_too_early(struct plan *plan)
{
    return move_before(plan, is_row_dot, is_forward);
}

bool out_too_early(struct plan *plan)
{
    return move_before(plan, delivers_out, is_forward);
}

static bool adds_last_part(const struct plan *plan, const struct op *op)
{
    return adds_from(plan, op, "dkv_arrived") || adds_part(plan, op) || adds_home(plan, op);
}

bool dkv_too_early(struct plan *plan)
{
    return move_before(plan, delivers_dkv, adds_last_part);
}

// ---- replaced operations -------

bool rowdot_zero(struct plan *plan)
{
    bool any = false;
    for (int32_t i = edit_find(plan, is_row_dot, 0); i >= 0;
         i = edit_find(plan, is_row_dot, i + 1)) {
        plan->ops[i] = edit_fill(&plan->ops[i], plan->ops[i].operand[ROW_DOT_D], 0);
        any = true;
    }
    return any;
}

static bool is_convert(const struct plan *plan, const struct op *op)
{
    (void)plan;
    return op->kind == OP_CONVERT;
}

// A conversion does not know the length of rows; ROW is a usual head dimension.
#define ROW 64

// After each conversion, overwrites the end of its result with zeros.
bool convert_truncates(struct plan *plan)
{
    int element = case_element_bytes(&plan->c);
    int32_t i = edit_find(plan, is_convert, 0);
    if (i < 0)
        return false;
    struct region zeros = edit_buffer(plan, "zeros", ROW * 4);
    edit_insert(plan, 0, edit_fill(&plan->ops[0], zeros, 0));
    for (i++; i >= 0; i = edit_find(plan, is_convert, i + 2)) {
        struct op more = plan->ops[i];
        struct region *to = &more.operand[UNARY_DESTINATION];
        int64_t count = to->bytes / element, lost = count < ROW ? count : ROW;
        *to = region_part(*to, (count - lost) * element, lost * element);
        more.operand[UNARY_SOURCE] = region_part(zeros, 0, lost * 4);
        edit_insert(plan, i + 1, more);
    }
    return true;
}
