// SPDX-License-Identifier: Apache-2.0
#include "tests/mutations/edit.h"

#include <stdlib.h>
#include <string.h>

#include "plan/bias.h"
#include "plan/builder.h"
#include "plan/team_order.h"

static void *grown(void *array, int32_t count, size_t size)
{
    void *memory = reallocarray(array, (size_t)count, size);
    if (!memory)
        abort();
    return memory;
}

// ---- conditions ----

bool edit_begins(const struct plan *plan, const struct region *r, const char *name)
{
    return r->bytes > 0 && strncmp(plan->buffers[r->buffer].name, name, strlen(name)) == 0;
}

bool edit_is(const struct plan *plan, const struct region *r, const char *name)
{
    if (!edit_begins(plan, r, name))
        return false;
    char next = plan->buffers[r->buffer].name[strlen(name)];
    return next == '\0' || next == '.';
}

int edit_ring_size(const struct plan *plan)
{
    return plan->c.world_size / team_size(&plan->c);
}

bool edit_is_ring(const struct plan *plan)
{
    return plan->c.comm == COMM_P2P || plan->c.comm == COMM_A2A_P2P;
}

bool edit_is_attend(const struct op *op)
{
    return op->kind == OP_ATTEND_FORWARD || op->kind == OP_ATTEND_BACKWARD;
}

struct team edit_source(const struct plan *plan, const struct op *op)
{
    int size = team_size(&plan->c), teams = edit_ring_size(plan), source = plan->rank / size;
    if (plan->c.comm == COMM_ALL_GATHER)
        source -= op->kind == OP_ATTEND_FORWARD ? op->step : op->step + 1;
    else if (edit_is_ring(plan))
        source += op->kind == OP_ATTEND_FORWARD ? -op->step : op->step + 1;
    return (struct team){(source + teams) % teams * size, size};
}

bool edit_is_remote(const struct plan *plan, const struct op *op)
{
    return edit_source(plan, op).first != team_of(plan->rank, team_size(&plan->c)).first;
}

int32_t edit_find(const struct plan *plan, match_fn *match, int32_t from)
{
    for (int32_t i = from; i < plan->op_count; i++)
        if (match(plan, &plan->ops[i]))
            return i;
    return -1;
}

int32_t edit_find_last(const struct plan *plan, match_fn *match)
{
    int32_t last = -1;
    for (int32_t i = edit_find(plan, match, 0); i >= 0; i = edit_find(plan, match, i + 1))
        last = i;
    return last;
}

// ---- changes -----

void edit_drop(struct op *op)
{
    memset(op, 0, sizeof *op);
    op->kind = OP_KINDS;
}

bool edit_drop_all(struct plan *plan, match_fn *match)
{
    bool any = false;
    for (int32_t i = edit_find(plan, match, 0); i >= 0; i = edit_find(plan, match, i + 1)) {
        edit_drop(&plan->ops[i]);
        any = true;
    }
    return any;
}

void edit_insert(struct plan *plan, int32_t at, struct op op)
{
    plan->ops = grown(plan->ops, plan->op_count + 1, sizeof *plan->ops);
    memmove(plan->ops + at + 1, plan->ops + at, (size_t)(plan->op_count - at) * sizeof op);
    plan->ops[at] = op;
    plan->op_count++;
}

void edit_move(struct plan *plan, int32_t from, int32_t at)
{
    struct op op = plan->ops[from];
    edit_drop(&plan->ops[from]);
    edit_insert(plan, at, op);
}

struct region edit_buffer(struct plan *plan, const char *name, int64_t bytes)
{
    plan->buffers = grown(plan->buffers, plan->buffer_count + 1, sizeof *plan->buffers);
    struct plan_buffer *buffer = &plan->buffers[plan->buffer_count];
    *buffer = (struct plan_buffer){.role = BUFFER_SCRATCH, .bytes = bytes};
    strncpy(buffer->name, name, sizeof buffer->name - 1);
    return (struct region){.buffer = plan->buffer_count++, .bytes = bytes};
}

static struct op beside(const struct op *like, enum op_kind kind)
{
    return (struct op){.kind = kind, .phase = like->phase, .step = like->step};
}

struct op edit_fill(const struct op *like, struct region destination, float value)
{
    struct op op = beside(like, OP_FILL);
    op.operand[UNARY_DESTINATION] = destination;
    op.value = value;
    return op;
}

struct op edit_add(const struct op *like, struct region source, struct region destination)
{
    struct op op = beside(like, OP_ADD);
    op.operand[UNARY_SOURCE] = source;
    op.operand[UNARY_DESTINATION] = destination;
    return op;
}

struct op edit_exchange(const struct op *like)
{
    return beside(like, OP_EXCHANGE);
}

// Moves the operation's transfers to the end of the plan's array, and adds one.
void edit_transfer(struct plan *plan, int32_t op, struct transfer transfer)
{
    struct op *exchange = &plan->ops[op];
    int32_t count = exchange->transfer_count;
    plan->transfers =
        grown(plan->transfers, plan->transfer_count + count + 1, sizeof *plan->transfers);
    struct transfer *moved = plan->transfers + plan->transfer_count;
    memcpy(moved, plan->transfers + exchange->transfer_first, (size_t)count * sizeof *moved);
    moved[count] = transfer;
    exchange->transfer_first = plan->transfer_count;
    exchange->transfer_count = count + 1;
    plan->transfer_count += count + 1;
}

// ---- rectangles ----

static bool sees_any(const struct slice *s, int64_t i)
{
    int64_t begin, end;
    slice_visible(s, i, &begin, &end);
    return begin < end;
}

// Removes queries without keys and keys without queries; false if nothing is left.
static bool trim(const struct cp_case *c, struct slice *s)
{
    for (; s->q_len > 0 && !sees_any(s, 0); s->q_len--) {
        s->q_row += shard_row_step(c);
        s->bias_row += bias_row_step(c);
        s->offset--;
    }
    while (s->q_len > 0 && !sees_any(s, s->q_len - 1))
        s->q_len--;
    int64_t first = s->kv_len, last = 0;
    for (int64_t i = 0; i < s->q_len; i++) {
        int64_t begin, end;
        slice_visible(s, i, &begin, &end);
        first = begin < first ? begin : first;
        last = end > last ? end : last;
    }
    s->kv_row += first * shard_row_step(c);
    s->bias_column += first;
    s->offset += first;
    s->kv_len = last - first;
    return s->q_len > 0 && s->kv_len > 0;
}

static struct slice slice_of(const struct rectangle *r)
{
    return (struct slice){.q_row = r->q.row,
                          .q_len = r->q.len,
                          .kv_row = r->keys.row,
                          .kv_len = r->keys.len,
                          .offset = r->keys.position - r->q.position + r->band.shift,
                          .left = r->band.left,
                          .right = r->band.right,
                          .bias_row = r->q.bias_row,
                          .bias_column = r->bias_column};
}

// The spans of a team; the caller frees them.
static struct span *spans_of(const struct cp_case *c, enum shard_side side, struct team team,
                             int *count)
{
    struct span *spans = grown(NULL, team.size * shard_spans_max(c) + 1, sizeof *spans);
    *count = team_spans(c, side, team, spans);
    return spans;
}

static void slice_append(struct plan *plan, struct op *op, struct slice s)
{
    plan->slices = grown(plan->slices, plan->slice_count + 1, sizeof *plan->slices);
    plan->slices[plan->slice_count++] = s;
    op->slice_count++;
}

// Builds the slices of one operation again. False if no rectangle changed.
static bool op_rectangles(struct plan *plan, struct op *op, rectangle_fn *change)
{
    const struct cp_case *c = &plan->c;
    int q_count, key_count;
    bool changed = false;
    struct span *q = spans_of(c, SIDE_Q, team_of(plan->rank, team_size(c)), &q_count);
    struct span *keys = spans_of(c, SIDE_KV, edit_source(plan, op), &key_count);
    op->slice_first = plan->slice_count;
    op->slice_count = 0;
    for (int i = 0; i < q_count * key_count; i++) {
        struct rectangle r = {.c = c,
                              .rank = plan->rank,
                              .remote = edit_is_remote(plan, op),
                              .backward = op->kind == OP_ATTEND_BACKWARD,
                              .q = q[i / key_count],
                              .keys = keys[i % key_count]};
        if (r.q.sequence != r.keys.sequence)
            continue;
        r.bias_column = r.keys.position;
        r.band = case_band(c, r.q.sequence);
        changed |= change(&r);
        struct slice s = slice_of(&r);
        if (trim(c, &s))
            slice_append(plan, op, s);
    }
    free(q);
    free(keys);
    return changed;
}

bool edit_rectangles(struct plan *plan, rectangle_fn *change)
{
    bool changed = false;
    for (int32_t i = 0; i < plan->op_count; i++)
        if (edit_is_attend(&plan->ops[i]))
            changed |= op_rectangles(plan, &plan->ops[i], change);
    return changed;
}

// ---- the changed plan ----

static void replay(struct builder *b, const struct plan *plan, const struct op *op)
{
    const struct region *r = op->operand;
    const struct slice *slices = plan->slices + op->slice_first;
    builder_step(b, op->phase, op->step);
    switch (op->kind) {
    case OP_ATTEND_FORWARD:
    case OP_ATTEND_BACKWARD:
        builder_attend(b, op->kind, op->heads, op->q_rows, op->bias_rows, r, slices,
                       op->slice_count);
        break;
    case OP_ROW_DOT:
        builder_row_dot(b, op->heads, op->q_rows, r[ROW_DOT_DO], r[ROW_DOT_O], r[ROW_DOT_D]);
        break;
    case OP_ADD:
        builder_add(b, r[UNARY_SOURCE], r[UNARY_DESTINATION]);
        break;
    case OP_CONVERT:
        builder_convert(b, r[UNARY_SOURCE], r[UNARY_DESTINATION]);
        break;
    case OP_MAX:
        builder_max(b, r[UNARY_SOURCE], r[UNARY_DESTINATION]);
        break;
    case OP_FILL:
        builder_fill(b, r[UNARY_DESTINATION], op->value);
        break;
    case OP_FILL_HEADS:
        builder_fill_heads(b, op->heads, op->q_rows, r[UNARY_SOURCE], r[UNARY_DESTINATION]);
        break;
    case OP_SINK_GRAD:
        builder_sink_grad(b, op->heads, op->q_rows, r, slices, op->slice_count);
        break;
    case OP_REDUCE: // operations of other kinds of jobs; their plans are not edited
    case OP_DIVIDE:
    case OP_PRODUCT:
    case OP_ACTIVATE:
    case OP_ACTIVATE_BACKWARD:
    case OP_COLUMN_SUM:
    case OP_SUM_PARTS:
        abort();
    case OP_COPY:
        builder_copy(b, plan->transfers + op->transfer_first, op->transfer_count);
        break;
    case OP_EXCHANGE:
        builder_exchange(b, plan->transfers + op->transfer_first, op->transfer_count);
        break;
    case OP_KINDS:
        break;
    }
}

void edit_finish(struct plan **plan)
{
    struct plan *edited = *plan;
    struct builder *b = builder_create(&edited->c, edited->rank);
    if (!b)
        abort();
    for (int32_t i = 0; i < edited->buffer_count; i++)
        builder_buffer(b, edited->buffers[i].name, edited->buffers[i].role,
                       edited->buffers[i].bytes);
    for (int32_t i = 0; i < edited->op_count; i++)
        replay(b, edited, &edited->ops[i]);
    if (builder_finish(b, plan, NULL) != STATUS_OK)
        abort();
    builder_destroy(b);
    plan_destroy(edited);
}
