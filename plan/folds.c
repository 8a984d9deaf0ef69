// SPDX-License-Identifier: Apache-2.0
#include "plan/folds.h"

#include <stdlib.h>
#include <string.h>

#include "plan/shard.h"

// Alignment in its buffer, in bytes, of a tensor that attentions write in dtype.
#define FOLD_ALIGNMENT 16

// A running result, and the indices of the operations that touch it.
struct result {
    struct region o, lse;
    int32_t fill_o, fill_lse; // fill_lse: a fill, or fill heads
    int32_t first, last;      // attentions that merge into it
    int32_t convert;
};

// ---- accesses to buffers ------------------------------------------------------------------------

static bool regions_same(const struct region *a, const struct region *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->bytes == b->bytes &&
           a->rows <= 1 && b->rows <= 1;
}

static bool is_in(const struct region *r, int32_t buffer)
{
    return r->bytes > 0 && r->buffer == buffer;
}

// How an operation accesses a buffer.
static enum access touch(const struct plan *plan, const struct op *op, int32_t buffer)
{
    unsigned touched = ACCESS_NONE;
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &plan->transfers[op->transfer_first + i];
        touched |= is_in(&t->send, buffer) ? ACCESS_READ : 0;
        touched |= is_in(&t->receive, buffer) ? ACCESS_WRITE : 0;
    }
    for (int i = 0; i < OPERANDS_MAX; i++)
        if (is_in(&op->operand[i], buffer))
            touched |= op_access(op->kind, i);
    return (enum access)touched;
}

// The first operation from `from` on that touches a buffer; op_count if none does.
static int32_t next_touch(const struct plan *plan, int32_t from, int32_t buffer)
{
    while (from < plan->op_count && touch(plan, &plan->ops[from], buffer) == ACCESS_NONE)
        from++;
    return from;
}

static const struct region *target(const struct plan *plan, int32_t i)
{
    return &plan->ops[i].operand[UNARY_DESTINATION];
}

// The conversion of `source`; -1: none qualifies. It must be the first operation behind `behind`
// that touches the buffer of `source`, and must have no waits. It must be the first operation that
// touches its destination, which must be aligned to FOLD_ALIGNMENT.
static int32_t convert_of(const struct plan *plan, int32_t behind, const struct region *source)
{
    int32_t i = next_touch(plan, behind + 1, source->buffer);
    if (i == plan->op_count)
        return -1;
    const struct op *op = &plan->ops[i];
    bool is = op->kind == OP_CONVERT && op->wait_count == 0 &&
              regions_same(&op->operand[UNARY_SOURCE], source) && target(plan, i)->rows <= 1 &&
              target(plan, i)->offset % FOLD_ALIGNMENT == 0 &&
              next_touch(plan, 0, target(plan, i)->buffer) == i;
    return is ? i : -1;
}

// ---- a running result: its operations -----------------------------------------------------------

// Finds the fill of O with 0, which must be the first operation that touches O, followed by the
// first attention. False: there is none.
static bool fill_o_find(const struct plan *plan, struct result *r)
{
    r->fill_o = next_touch(plan, 0, r->o.buffer);
    const struct op *op = &plan->ops[r->fill_o];
    return op->kind == OP_FILL && op->value == 0 && regions_same(target(plan, r->fill_o), &r->o) &&
           next_touch(plan, r->fill_o + 1, r->o.buffer) == r->first;
}

static bool fill_lse_find(const struct plan *plan, struct result *r)
{
    r->fill_lse = next_touch(plan, 0, r->lse.buffer);
    const struct op *op = &plan->ops[r->fill_lse];
    return (op->kind == OP_FILL || op->kind == OP_FILL_HEADS) &&
           regions_same(target(plan, r->fill_lse), &r->lse) &&
           next_touch(plan, r->fill_lse + 1, r->lse.buffer) == r->first;
}

static bool merges(const struct plan *plan, int32_t i, const struct result *r)
{
    const struct op *op = &plan->ops[i];
    return op->kind == OP_ATTEND_FORWARD && regions_same(&op->operand[ATTEND_O], &r->o) &&
           regions_same(&op->operand[ATTEND_LSE], &r->lse);
}

// Finds the last attention that merges into the result. False: another operation writes O, or one
// of the attentions cannot fold.
static bool attends_find(const struct plan *plan, const struct fold_ability *may, struct result *r)
{
    for (int32_t i = r->first; i < plan->op_count; i++) {
        if (merges(plan, i, r) && may[i].folds)
            r->last = i;
        else if (touch(plan, &plan->ops[i], r->o.buffer) & ACCESS_WRITE)
            return false;
    }
    return true;
}

// ---- rows ---------------------------------------------------------------------------------------

// Marks the rows of the queries that see a key, or of the keys that a query sees, in attention i.
// Returns the number of newly marked rows.
static int64_t rows_mark(const struct plan *plan, int32_t i, bool queries, bool *marks)
{
    const struct op *op = &plan->ops[i];
    const int64_t step = shard_row_step(&plan->c);
    int64_t added = 0;
    for (int32_t n = 0; n < op->slice_count; n++) {
        const struct slice *s = &plan->slices[op->slice_first + n];
        int64_t begin, end, first = queries ? s->q_row : s->kv_row;
        slice_met(s, queries, &begin, &end);
        for (int64_t row = begin; row < end; row++) {
            bool *mark = &marks[first + row * step];
            added += !*mark;
            *mark = true;
        }
    }
    return added;
}

// ---- a running result: folds --------------------------------------------------------------------

static void fold_begin(const struct plan *plan, const struct result *r, struct fold *folds)
{
    struct fold *first = &folds[r->first];
    first->begins = true;
    folds[r->fill_o].done = true;
    if (plan->ops[r->fill_lse].kind != OP_FILL)
        return;
    first->lse_begins = true;
    first->lse_begin = plan->ops[r->fill_lse].value;
    folds[r->fill_lse].done = true;
}

// Walks the attentions backwards. Each row is rounded to dtype by the last attention in which it
// sees a key, and perhaps also by earlier ones.
static void fold_end(const struct plan *plan, const struct result *r, bool *marks,
                     struct fold *folds)
{
    memset(marks, 0, (size_t)plan->ops[r->first].q_rows);
    for (int32_t i = r->last; i >= r->first; i--)
        if (merges(plan, i, r) && rows_mark(plan, i, true, marks) > 0)
            folds[i].out = *target(plan, r->convert);
    folds[r->convert].done = true;
    folds[r->last].out_only = folds[r->last].out.bytes > 0 &&
                              next_touch(plan, r->convert + 1, r->o.buffer) == plan->op_count;
}

// Folds the fills and the conversion of the running result whose first attention is `first`. In
// that attention every query must see a key.
static void fold_around(const struct plan *plan, const struct fold_ability *may, int32_t first,
                        struct fold *folds)
{
    const struct op *op = &plan->ops[first];
    struct result r = {.o = op->operand[ATTEND_O], .lse = op->operand[ATTEND_LSE], .first = first};
    if (!fill_o_find(plan, &r) || !fill_lse_find(plan, &r) || !attends_find(plan, may, &r))
        return;
    r.convert = convert_of(plan, r.last, &r.o);
    if (r.convert < 0)
        return;
    bool *marks = calloc((size_t)op->q_rows + 1, sizeof(*marks));
    if (marks && rows_mark(plan, first, true, marks) == op->q_rows) {
        fold_begin(plan, &r, folds);
        fold_end(plan, &r, marks, folds);
    }
    free(marks);
}

// ---- gradients ----------------------------------------------------------------------------------

// The fill of `filled` with 0, if it is the last operation before the attention that touches the
// buffer; -1: it is not.
static int32_t fill_before(const struct plan *plan, int32_t attend, const struct region *filled)
{
    int32_t i = attend - 1;
    while (i >= 0 && touch(plan, &plan->ops[i], filled->buffer) == ACCESS_NONE)
        i--;
    bool is_fill = i >= 0 && plan->ops[i].kind == OP_FILL && plan->ops[i].value == 0 &&
                   regions_same(target(plan, i), filled);
    return is_fill ? i : -1;
}

// Leaves to a fill the unmarked rows of a tensor, which the attention does not write. False: they
// form too many runs.
static bool parts_leave(const struct region *tensor, const bool *marks, int64_t rows,
                        struct fold *fill)
{
    int64_t width = tensor->bytes / rows;
    for (int64_t first = 0, end; first < rows; first = end) {
        bool met = marks[first];
        for (end = first + 1; end < rows && marks[end] == met;)
            end++;
        if (!met && fill->part_count == FOLD_PARTS_MAX)
            return false;
        if (!met)
            fill->parts[fill->part_count++] =
                region_part(*tensor, first * width, (end - first) * width);
    }
    return true;
}

// The region of tensors that follow each other without a gap. False: they do not.
static bool tensors_join(const struct region *tensors, int count, struct region *all)
{
    *all = tensors[0];
    for (int i = 1; i < count; i++) {
        if (tensors[i].buffer != all->buffer || tensors[i].offset != all->offset + all->bytes)
            return false;
        all->bytes += tensors[i].bytes;
    }
    return true;
}

// Folds into an attention the fill of gradient tensors with `rows` rows each: the attention then
// takes them as 0. Returns true if it was folded.
static bool fold_gradients(const struct plan *plan, int32_t attend, bool queries, int64_t rows,
                           const struct region *tensors, int count, struct fold *folds)
{
    struct region filled;
    if (!tensors_join(tensors, count, &filled))
        return false;
    int32_t fill = fill_before(plan, attend, &filled);
    bool *marks = rows > 0 && fill >= 0 ? calloc((size_t)rows, sizeof(*marks)) : NULL;
    struct fold left = {0};
    bool folds_all = marks && rows_mark(plan, attend, queries, marks) > 0;
    for (int i = 0; i < count && folds_all; i++)
        folds_all = parts_leave(&tensors[i], marks, rows, &left);
    free(marks);
    if (!folds_all)
        return false;
    left.done = left.part_count == 0;
    folds[fill] = left;
    return true;
}

// True if every key of an attention is seen by a query.
static bool keys_are_met(const struct plan *plan, int32_t attend, int64_t rows)
{
    bool *marks = calloc((size_t)rows + 1, sizeof(*marks));
    bool met = marks && rows_mark(plan, attend, false, marks) == rows;
    free(marks);
    return met;
}

// Folds into an attention the conversion of dK and dV with `rows` rows, if every key is seen and no
// other operation reads the fp32 dK and dV afterwards.
static void fold_keys_end(const struct plan *plan, int32_t attend, int64_t rows,
                          const struct region *dkv, struct fold *folds)
{
    struct region both;
    if (!tensors_join(dkv, 2, &both) || !keys_are_met(plan, attend, rows))
        return;
    int32_t convert = convert_of(plan, attend, &both);
    if (convert < 0 || next_touch(plan, convert + 1, both.buffer) < plan->op_count)
        return;
    const struct region *to = target(plan, convert);
    int64_t dk_bytes = dkv->bytes / (int64_t)sizeof(float) * case_element_bytes(&plan->c);
    folds[attend].dk_out = region_part(*to, 0, dk_bytes);
    folds[attend].dv_out = region_part(*to, dk_bytes, to->bytes - dk_bytes);
    folds[convert].done = true;
}

static void fold_backward(const struct plan *plan, int32_t attend, bool queries, struct fold *folds)
{
    const struct op *op = &plan->ops[attend];
    const struct region *dkv = &op->operand[ATTEND_DK];
    _Static_assert(ATTEND_DV == ATTEND_DK + 1, "dK and dV are one behind the other");
    int64_t row_bytes = (int64_t)sizeof(float) * op->heads.kv_count * plan->c.head_dim_qk;
    int64_t rows = dkv->bytes / row_bytes;
    folds[attend].queries_begin = queries && fold_gradients(plan, attend, true, op->q_rows,
                                                            &op->operand[ATTEND_DQ], 1, folds);
    folds[attend].keys_begin = fold_gradients(plan, attend, false, rows, dkv, 2, folds);
    fold_keys_end(plan, attend, rows, dkv, folds);
}

// ---- sums ---------------------------------------------------------------------------------------

// True if operation i adds to `sum` and the conversion of `sum` can do it instead: no later
// operation touches the summand.
static bool is_addition(const struct plan *plan, int32_t i, const struct region *sum)
{
    const struct region *from = &plan->ops[i].operand[UNARY_SOURCE];
    return plan->ops[i].kind == OP_ADD && regions_same(target(plan, i), sum) && from->rows <= 1 &&
           from->buffer != sum->buffer && next_touch(plan, i + 1, from->buffer) == plan->op_count;
}

// Folds into a conversion the additions right before it, found from the last to the first. No later
// operation may touch the sum.
static void fold_sum(const struct plan *plan, int32_t convert, struct fold *folds)
{
    const struct region *sum = &plan->ops[convert].operand[UNARY_SOURCE];
    struct fold *fold = &folds[convert];
    int32_t found[FOLD_SUMMANDS_MAX - 1];
    if (sum->rows > 1 || next_touch(plan, convert + 1, sum->buffer) < plan->op_count)
        return;
    for (int32_t i = convert - 1; i >= 0 && fold->add_count < FOLD_SUMMANDS_MAX - 1; i--) {
        if (is_addition(plan, i, sum))
            found[fold->add_count++] = i;
        else if (touch(plan, &plan->ops[i], sum->buffer) != ACCESS_NONE)
            break;
    }
    for (int32_t n = 0; n < fold->add_count; n++) {
        fold->adds[n] = found[fold->add_count - 1 - n];
        folds[fold->adds[n]].done = true;
    }
}

void folds_find(const struct plan *plan, const struct fold_ability *may, bool sums,
                struct fold *folds)
{
    for (int32_t i = 0; i < plan->op_count; i++) {
        if (may[i].folds && plan->ops[i].kind == OP_ATTEND_FORWARD)
            fold_around(plan, may, i, folds);
        if (may[i].folds && plan->ops[i].kind == OP_ATTEND_BACKWARD)
            fold_backward(plan, i, may[i].begins_queries, folds);
        if (sums && plan->ops[i].kind == OP_CONVERT)
            fold_sum(plan, i, folds);
    }
}
