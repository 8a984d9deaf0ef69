// SPDX-License-Identifier: Apache-2.0
#include "rank/operations.h"

#include <string.h>

#include "common/mutation.h"
#include "judge/dtype.h"
#include "plan/bias.h"

static void *at(const struct operations *x, struct region region)
{
    return region_memory(x->buffers, &region);
}

// The prepared state of an operation; NULL: no operation of the plan is prepared.
static const struct attend *attend_of(const struct operations *x, const struct op *op)
{
    return x->attends ? &x->attends->list[op - x->plan->ops] : NULL;
}

// The work of other operations that the operation's launch does (plan/folds.h).
static const struct fold *fold_of(const struct operations *x, const struct op *op)
{
    static const struct fold none;
    return x->attends ? &x->attends->folds[op - x->plan->ops] : &none;
}

static enum status attend_forward(const struct operations *x, const struct op *op,
                                  struct error *error)
{
    const struct fold *fold = fold_of(x, op);
    struct attention_forward args = {
        .shape = attends_shape(x->plan, op),
        .q = at(x, op->operand[ATTEND_Q]),
        .k = at(x, op->operand[ATTEND_K]),
        .v = at(x, op->operand[ATTEND_V]),
        .o = at(x, op->operand[ATTEND_O]),
        .lse = at(x, op->operand[ATTEND_LSE]),
        .fold = {.begins = fold->begins,
                 .lse_begins = fold->lse_begins,
                 .lse_begin = fold->lse_begin,
                 .out = at(x, fold->out),
                 .out_only = fold->out_only},
        .bias = at(x, op->operand[ATTEND_BIAS]),
        .max_logit = at(x, op->operand[ATTEND_MAX]),
        .slices = x->plan->slices + op->slice_first,
        .slice_count = op->slice_count,
    };
    const struct attend *a = attend_of(x, op);
    if (!a)
        return x->ops->attention->forward(x->backend, &args, error);
    return a->provider->ops->forward(a->provider, a->prepared, &args, x->scratch, error);
}

static enum status attend_backward(const struct operations *x, const struct op *op,
                                   struct error *error)
{
    const struct attend *a = attend_of(x, op);
    const struct fold *fold = fold_of(x, op);
    struct attention_backward args = {
        .shape = attends_shape(x->plan, op),
        .q = at(x, op->operand[ATTEND_Q]),
        .k = at(x, op->operand[ATTEND_K]),
        .v = at(x, op->operand[ATTEND_V]),
        .d_out = at(x, op->operand[ATTEND_DO]),
        .lse = at(x, op->operand[ATTEND_LSE]),
        .d = at(x, op->operand[ATTEND_D]),
        .o = a ? at(x, a->o) : NULL,
        .dq = at(x, op->operand[ATTEND_DQ]),
        .dk = at(x, op->operand[ATTEND_DK]),
        .dv = at(x, op->operand[ATTEND_DV]),
        .queries_begin = fold->queries_begin,
        .keys_begin = fold->keys_begin,
        .dk_out = at(x, fold->dk_out),
        .dv_out = at(x, fold->dv_out),
        .bias = at(x, op->operand[ATTEND_BIAS]),
        .dbias = at(x, op->operand[ATTEND_DBIAS]),
        .slices = x->plan->slices + op->slice_first,
        .slice_count = op->slice_count,
    };
    if (!a)
        return x->ops->attention->backward(x->backend, &args, error);
    return a->provider->ops->backward(a->provider, a->prepared, &args, x->scratch, error);
}

static int64_t floats(struct region region)
{
    return region_total(&region) / (int64_t)sizeof(float);
}

static void row_dot(const struct operations *x, const struct op *op)
{
    struct attention_shape shape = attends_shape(x->plan, op);
    x->ops->row_dot(x->backend, &shape, at(x, op->operand[ROW_DOT_DO]),
                    at(x, op->operand[ROW_DOT_O]), at(x, op->operand[ROW_DOT_D]));
}

static void fill_heads(const struct operations *x, const struct op *op)
{
    struct attention_shape shape = attends_shape(x->plan, op);
    x->ops->fill_heads(x->backend, &shape, at(x, op->operand[UNARY_SOURCE]),
                       at(x, op->operand[UNARY_DESTINATION]));
}

static void sink_grad(const struct operations *x, const struct op *op)
{
    struct attention_shape shape = attends_shape(x->plan, op);
    x->ops->sink_grad(x->backend, &shape, attend_of(x, op)->rows, x->scratch,
                      at(x, op->operand[SINK_GRAD_SINK]), at(x, op->operand[SINK_GRAD_LSE]),
                      at(x, op->operand[SINK_GRAD_D]), at(x, op->operand[SINK_GRAD_DSINK]));
}

int operations_fill_parts(const struct operations *x, const struct op *op,
                          struct region parts[FOLD_PARTS_MAX])
{
    const struct fold *fold = fold_of(x, op);
    if (fold->done)
        return 0;
    parts[0] = op->operand[UNARY_DESTINATION];
    for (int32_t i = 0; i < fold->part_count; i++)
        parts[i] = fold->parts[i];
    return fold->part_count > 0 ? fold->part_count : 1;
}

_Static_assert(FOLD_SUMMANDS_MAX <= CONVERT_SUMMANDS_MAX, "a fold is one call");

// Converts the source to the case's dtype. Sums that are folded into the conversion are added
// first.
static void convert(const struct operations *x, const struct op *op)
{
    const struct fold *fold = fold_of(x, op);
    struct region from = op->operand[UNARY_SOURCE];
    void *to = at(x, op->operand[UNARY_DESTINATION]);
    const float *sources[FOLD_SUMMANDS_MAX] = {at(x, from)};
    int count = 1;
    for (int32_t i = 0; i < fold->add_count; i++)
        sources[count++] = at(x, x->plan->ops[fold->adds[i]].operand[UNARY_SOURCE]);
    if (count > 1)
        x->ops->convert_sum(x->backend, x->plan->c.dtype, sources, count, to, floats(from));
    else
        x->ops->convert(x->backend, x->plan->c.dtype, sources[0], to, floats(from));
}

// Adds the contiguous source to a destination in one or several pieces.
static void add(const struct operations *x, const struct op *op)
{
    struct region to = op->operand[UNARY_DESTINATION];
    const float *source = at(x, op->operand[UNARY_SOURCE]);
    int64_t count = to.bytes / (int64_t)sizeof(float);
    for (int64_t i = 0; i < region_pieces(&to); i++) {
        x->ops->add(x->backend, source + i * count, at(x, to), count);
        if (ROUNDS(SUMS))
            dtype_round(x->plan->c.dtype, at(x, to), count);
        to.offset += to.stride;
    }
}

// Copies a region to another of the same size, in runs that are contiguous on both sides.
static void region_copy(const struct operations *x, const struct region *from,
                        const struct region *to)
{
    int64_t total = region_total(from), bytes;
    for (int64_t i = 0; i < total; i += bytes) {
        int64_t from_left = from->bytes - i % from->bytes, to_left = to->bytes - i % to->bytes;
        bytes = from_left < to_left ? from_left : to_left;
        memcpy((char *)x->buffers[to->buffer] + region_piece(to, i / to->bytes) + i % to->bytes,
               (const char *)x->buffers[from->buffer] + region_piece(from, i / from->bytes) +
                   i % from->bytes,
               (size_t)bytes);
    }
}

// OP_COPY in host memory. On devices parcels_copy() does it.
static void copy(const struct operations *x, const struct op *op)
{
    for (int32_t i = 0; i < op->transfer_count; i++) {
        const struct transfer *t = &x->plan->transfers[op->transfer_first + i];
        region_copy(x, &t->send, &t->receive);
    }
}

// Number of elements of a collective's region.
static int64_t elements(const struct operations *x, struct region region)
{
    return region_total(&region) / collective_element_bytes(x->plan->collective.dtype);
}

static enum status product(const struct operations *x, const struct op *op, struct error *error)
{
    const struct product *p = &op->product;
    const void *bias = at(x, op->operand[PRODUCT_BIAS]);
    const struct gemm g = {.dtype = x->plan->linear.dtype,
                           .form = p->form,
                           .m = p->m,
                           .n = p->n,
                           .k = p->k,
                           .a = at(x, op->operand[PRODUCT_A]),
                           .b = at(x, op->operand[PRODUCT_B]),
                           .bias = bias,
                           .c = at(x, op->operand[PRODUCT_C]),
                           .wide = product_wide_bytes(p, bias != NULL) > 0 ? x->scratch : NULL};
    return gemm_run(x->ops->gemm, x->backend, &g, error);
}

// Operations of linear layers.
static enum status matrix(const struct operations *x, const struct op *op, struct error *error)
{
    const struct backend_ops *ops = x->ops;
    const struct region *r = op->operand;
    enum case_dtype dtype = x->plan->linear.dtype;
    switch (op->kind) {
    case OP_PRODUCT:
        return product(x, op, error);
    case OP_ACTIVATE:
        ops->activate(x->backend, dtype, &op->product, at(x, r[ACTIVATE_H]), at(x, r[ACTIVATE_TO]));
        break;
    case OP_ACTIVATE_BACKWARD:
        ops->activate_backward(x->backend, dtype, &op->product, at(x, r[ACTIVATE_H]),
                               at(x, r[ACTIVATE_D]), at(x, r[ACTIVATE_TO]));
        break;
    case OP_COLUMN_SUM:
        ops->column_sum(x->backend, dtype, &op->product, at(x, r[UNARY_SOURCE]),
                        at(x, r[UNARY_DESTINATION]));
        break;
    default:
        ops->sum_parts(x->backend, dtype, &op->product, x->plan->rank, at(x, r[SUM_PARTS]),
                       at(x, r[SUM_OWN]), at(x, r[SUM_BIAS]), at(x, r[SUM_DESTINATION]));
        break;
    }
    return STATUS_OK;
}

enum status operations_run(const struct operations *x, const struct op *op, struct error *error)
{
    const struct backend_ops *ops = x->ops;
    struct attention_backend *backend = x->backend;
    struct region source = op->operand[UNARY_SOURCE];
    struct region destination = op->operand[UNARY_DESTINATION];
    if (fold_of(x, op)->done)
        return STATUS_OK;
    switch (op->kind) {
    case OP_ATTEND_FORWARD:
        return attend_forward(x, op, error);
    case OP_ATTEND_BACKWARD:
        return attend_backward(x, op, error);
    case OP_ROW_DOT:
        row_dot(x, op);
        return STATUS_OK;
    case OP_ADD:
        add(x, op);
        return STATUS_OK;
    case OP_MAX:
        ops->max(backend, at(x, source), at(x, destination), floats(source));
        return STATUS_OK;
    case OP_FILL_HEADS:
        fill_heads(x, op);
        return STATUS_OK;
    case OP_SINK_GRAD:
        sink_grad(x, op);
        return STATUS_OK;
    case OP_CONVERT:
        convert(x, op);
        return STATUS_OK;
    case OP_COPY:
        copy(x, op);
        return STATUS_OK;
    case OP_FILL: // the whole destination: only the device's executor fills folded parts
        ops->fill(backend, at(x, destination), op->value, floats(destination));
        return STATUS_OK;
    case OP_REDUCE:
        ops->reduce(backend, x->plan->collective.dtype, x->plan->collective.reduction,
                    at(x, source), at(x, destination), elements(x, destination));
        return STATUS_OK;
    case OP_DIVIDE:
        ops->divide(backend, x->plan->collective.dtype, (int)op->value, at(x, destination),
                    elements(x, destination));
        return STATUS_OK;
    case OP_PRODUCT:
    case OP_ACTIVATE:
    case OP_ACTIVATE_BACKWARD:
    case OP_COLUMN_SUM:
    case OP_SUM_PARTS:
        return matrix(x, op, error);
    case OP_EXCHANGE:
    case OP_KINDS:
        break;
    }
    return error_set(error, STATUS_INTERNAL, "operation kind %d is no compute operation",
                     (int)op->kind);
}
