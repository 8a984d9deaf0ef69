// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.h"

#include <stdlib.h>

#include "common/guard.h"
#include "plan/cost.h"

static const char *const kind_names[OP_KINDS] = {
    [OP_ATTEND_FORWARD] = "attend",
    [OP_ATTEND_BACKWARD] = "attend backward",
    [OP_ROW_DOT] = "row dot",
    [OP_ADD] = "add",
    [OP_CONVERT] = "convert",
    [OP_MAX] = "max",
    [OP_FILL] = "fill",
    [OP_FILL_HEADS] = "fill heads",
    [OP_SINK_GRAD] = "sink gradient",
    [OP_REDUCE] = "reduce",
    [OP_DIVIDE] = "divide",
    [OP_PRODUCT] = "product",
    [OP_ACTIVATE] = "activate",
    [OP_ACTIVATE_BACKWARD] = "activate backw.",
    [OP_COLUMN_SUM] = "column sum",
    [OP_SUM_PARTS] = "sum parts",
    [OP_COPY] = "copy",
    [OP_EXCHANGE] = "exchange",
};

static const enum access access_table[OP_KINDS][OPERANDS_MAX] = {
    [OP_ATTEND_FORWARD] =
        {
            [ATTEND_Q] = ACCESS_READ,
            [ATTEND_K] = ACCESS_READ,
            [ATTEND_V] = ACCESS_READ,
            [ATTEND_O] = ACCESS_READ_WRITE,
            [ATTEND_LSE] = ACCESS_READ_WRITE,
            [ATTEND_MAX] = ACCESS_READ_WRITE,
            [ATTEND_BIAS] = ACCESS_READ,
        },
    [OP_ATTEND_BACKWARD] =
        {
            [ATTEND_Q] = ACCESS_READ,
            [ATTEND_K] = ACCESS_READ,
            [ATTEND_V] = ACCESS_READ,
            [ATTEND_LSE] = ACCESS_READ,
            [ATTEND_DO] = ACCESS_READ,
            [ATTEND_D] = ACCESS_READ,
            [ATTEND_DQ] = ACCESS_READ_WRITE,
            [ATTEND_DK] = ACCESS_READ_WRITE,
            [ATTEND_DV] = ACCESS_READ_WRITE,
            [ATTEND_BIAS] = ACCESS_READ,
            [ATTEND_DBIAS] = ACCESS_READ_WRITE,
        },
    [OP_ROW_DOT] =
        {[ROW_DOT_DO] = ACCESS_READ, [ROW_DOT_O] = ACCESS_READ, [ROW_DOT_D] = ACCESS_WRITE},
    [OP_ADD] = {[UNARY_SOURCE] = ACCESS_READ, [UNARY_DESTINATION] = ACCESS_READ_WRITE},
    [OP_CONVERT] = {[UNARY_SOURCE] = ACCESS_READ, [UNARY_DESTINATION] = ACCESS_WRITE},
    [OP_MAX] = {[UNARY_SOURCE] = ACCESS_READ, [UNARY_DESTINATION] = ACCESS_READ_WRITE},
    [OP_FILL] = {[UNARY_DESTINATION] = ACCESS_WRITE},
    [OP_REDUCE] = {[UNARY_SOURCE] = ACCESS_READ, [UNARY_DESTINATION] = ACCESS_READ_WRITE},
    [OP_DIVIDE] = {[UNARY_DESTINATION] = ACCESS_READ_WRITE},
    [OP_PRODUCT] = {[PRODUCT_A] = ACCESS_READ,
                    [PRODUCT_B] = ACCESS_READ,
                    [PRODUCT_BIAS] = ACCESS_READ,
                    [PRODUCT_C] = ACCESS_WRITE},
    [OP_ACTIVATE] = {[ACTIVATE_H] = ACCESS_READ, [ACTIVATE_TO] = ACCESS_WRITE},
    [OP_ACTIVATE_BACKWARD] =
        {[ACTIVATE_H] = ACCESS_READ, [ACTIVATE_D] = ACCESS_READ, [ACTIVATE_TO] = ACCESS_WRITE},
    [OP_COLUMN_SUM] = {[UNARY_SOURCE] = ACCESS_READ, [UNARY_DESTINATION] = ACCESS_WRITE},
    [OP_SUM_PARTS] = {[SUM_PARTS] = ACCESS_READ,
                      [SUM_OWN] = ACCESS_READ,
                      [SUM_BIAS] = ACCESS_READ,
                      [SUM_DESTINATION] = ACCESS_WRITE},
    [OP_FILL_HEADS] = {[UNARY_SOURCE] = ACCESS_READ, [UNARY_DESTINATION] = ACCESS_WRITE},
    [OP_SINK_GRAD] =
        {
            [SINK_GRAD_SINK] = ACCESS_READ,
            [SINK_GRAD_LSE] = ACCESS_READ,
            [SINK_GRAD_D] = ACCESS_READ,
            [SINK_GRAD_DSINK] = ACCESS_READ_WRITE,
        },
};

const char *op_kind_name(enum op_kind kind)
{
    return kind_names[kind];
}

enum access op_access(enum op_kind kind, int operand)
{
    return access_table[kind][operand];
}

static bool region_folds(struct region *r)
{
    if (r->rows > 1 && r->stride == r->bytes) { // pieces that touch
        r->bytes *= r->rows;
        r->rows = 1;
    } else if (r->rows <= 1 && r->blocks > 1) {
        r->rows = r->blocks;
        r->stride = r->block_stride;
        r->blocks = 1;
    } else if (r->blocks > 1 && r->block_stride == r->rows * r->stride) {
        r->rows *= r->blocks;
        r->blocks = 1;
    } else {
        return false;
    }
    return true;
}

struct region region_make(struct region r)
{
    if (r.rows == 0 || r.blocks == 0 || r.bytes == 0)
        return region_part(r, 0, 0);
    while (region_folds(&r))
        ;
    if (r.rows <= 1)
        return region_part(r, 0, r.bytes);
    if (r.blocks <= 1)
        r.blocks = r.block_stride = 0;
    return r;
}

void plan_forget_slices(struct plan *plan)
{
    free(plan->slices);
    plan->slices = NULL;
    plan->slice_count = 0;
    for (int32_t i = 0; i < plan->op_count; i++)
        plan->ops[i].slice_first = plan->ops[i].slice_count = 0;
}

void plan_keep_tensors(struct plan *plan)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < plan->buffer_count; i++)
        if (plan->buffers[i].role != BUFFER_SCRATCH)
            plan->buffers[kept++] = plan->buffers[i];
    plan->buffer_count = kept;
    plan->op_count = 0;
}

void plan_guard(struct plan *plan, bool scratch)
{
    for (int32_t i = 0; i < plan->buffer_count; i++)
        if (scratch || plan->buffers[i].role != BUFFER_SCRATCH)
            plan->buffers[i].before = plan->buffers[i].after = GUARD_BYTES;
}

void plan_destroy(struct plan *plan)
{
    if (!plan)
        return;
    free(plan->buffers);
    free(plan->ops);
    free(plan->slices);
    free(plan->transfers);
    free(plan->waits);
    free(plan);
}

double op_flops(const struct plan *plan, const struct op *op)
{
    const struct product *product = &op->product;
    if (op->kind == OP_PRODUCT)
        return 2 * (double)product->m * (double)product->n * (double)product->k;
    double pairs = 0;
    for (int32_t i = 0; i < op->slice_count; i++)
        pairs += (double)slice_pairs(&plan->slices[op->slice_first + i]);
    pairs *= op->heads.count;
    if (op->kind == OP_ATTEND_FORWARD)
        return cost_forward(&plan->c, pairs);
    return op->kind == OP_ATTEND_BACKWARD ? cost_backward(&plan->c, pairs) : 0;
}

int64_t op_bytes(const struct plan *plan, const struct op *op)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < op->transfer_count; i++)
        bytes += region_total(&plan->transfers[op->transfer_first + i].send);
    return bytes;
}
