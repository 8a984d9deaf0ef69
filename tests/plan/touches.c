// SPDX-License-Identifier: Apache-2.0
#include "tests/plan/touches.h"

#include <string.h>

// Numbers of elements of the operands. The number of key rows follows from the region of K.
struct sizes {
    int64_t q, out, row; // row: LSE or D
    int64_t k, v;
    int64_t head, bias; // head: one element for each head
    int64_t dtype;      // bytes of an element of an input
};

static bool bias_is_per_head(enum case_bias bias)
{
    return bias == BIAS_1H1S || bias == BIAS_1HSS || bias == BIAS_BH1S || bias == BIAS_BHSS;
}

static struct sizes sizes_of(const struct plan *plan, const struct op *op)
{
    const struct cp_case *c = &plan->c;
    struct sizes z = {.dtype = c->dtype == DTYPE_FP32 ? 4 : 2, .head = op->heads.count};
    z.row = op->q_rows * op->heads.count;
    z.q = z.row * c->head_dim_qk;
    z.out = z.row * c->head_dim_v;
    z.k = op->operand[ATTEND_K].bytes / z.dtype;
    z.v = z.k / c->head_dim_qk * c->head_dim_v;
    if (c->bias != BIAS_NONE)
        z.bias = op->bias_rows * c->seqlen_kv * (bias_is_per_head(c->bias) ? op->heads.count : 1);
    return z;
}

static struct touch reads(int64_t bytes)
{
    return (struct touch){.reads = true, .bytes = bytes};
}

static struct touch writes(int64_t bytes)
{
    return (struct touch){.writes = true, .bytes = bytes};
}

static struct touch adds_to(int64_t bytes)
{
    return (struct touch){.reads = true, .writes = true, .bytes = bytes};
}

// Q, K, V, bias and slices are inputs; O, LSE and the largest logit are updated.
static void forward(const struct cp_case *c, const struct sizes *z, struct touch *t)
{
    t[ATTEND_Q] = reads(z->q * z->dtype);
    t[ATTEND_K] = reads(z->k * z->dtype);
    t[ATTEND_V] = reads(z->v * z->dtype);
    t[ATTEND_BIAS] = reads(z->bias * z->dtype);
    t[ATTEND_O] = adds_to(z->out * 4);
    t[ATTEND_LSE] = adds_to(z->row * 4);
    t[ATTEND_MAX] = adds_to(c->max_logit ? z->head * 4 : 0);
}

// Q, K, V, bias, dO, LSE and D are inputs; the operation adds to the gradients.
static void backward(const struct sizes *z, struct touch *t)
{
    t[ATTEND_Q] = reads(z->q * z->dtype);
    t[ATTEND_K] = reads(z->k * z->dtype);
    t[ATTEND_V] = reads(z->v * z->dtype);
    t[ATTEND_BIAS] = reads(z->bias * z->dtype);
    t[ATTEND_DO] = reads(z->out * z->dtype);
    t[ATTEND_LSE] = reads(z->row * 4);
    t[ATTEND_D] = reads(z->row * 4);
    t[ATTEND_DQ] = adds_to(z->q * 4);
    t[ATTEND_DK] = adds_to(z->k * 4);
    t[ATTEND_DV] = adds_to(z->v * 4);
    t[ATTEND_DBIAS] = adds_to(z->bias * 4);
}

// The operands of the operations of linear layers.
static void matrices(const struct plan *plan, const struct op *op, struct touch *touch)
{
    int64_t element = plan->linear.dtype == DTYPE_FP32 ? 4 : 2;
    int64_t row = op->product.n * element, matrix = op->product.m * row;
    int gates = op->product.activation == ACTIVATION_SWIGLU ? 2 : 1;
    switch (op->kind) {
    case OP_PRODUCT: // c [m][n] = a b + bias
        touch[PRODUCT_A] = reads(op->product.m * op->product.k * element);
        touch[PRODUCT_B] = reads(op->product.k * op->product.n * element);
        touch[PRODUCT_BIAS] = reads(op->operand[PRODUCT_BIAS].bytes > 0 ? row : 0);
        touch[PRODUCT_C] = writes(matrix);
        break;
    case OP_ACTIVATE: // to [m][n] = the activation of h
        touch[ACTIVATE_H] = reads(matrix * gates);
        touch[ACTIVATE_TO] = writes(matrix);
        break;
    case OP_ACTIVATE_BACKWARD: // to = the gradient of h
        touch[ACTIVATE_H] = reads(matrix * gates);
        touch[ACTIVATE_D] = reads(matrix);
        touch[ACTIVATE_TO] = writes(matrix * gates);
        break;
    case OP_COLUMN_SUM: // destination [n] = the sum of the rows of source
        touch[UNARY_SOURCE] = reads(matrix);
        touch[UNARY_DESTINATION] = writes(row);
        break;
    default: // destination [m][n] = own + k - 1 parts + bias
        touch[SUM_PARTS] = reads((op->product.k - 1) * matrix);
        touch[SUM_OWN] = reads(matrix);
        touch[SUM_BIAS] = reads(op->operand[SUM_BIAS].bytes > 0 ? row : 0);
        touch[SUM_DESTINATION] = writes(matrix);
        break;
    }
}

void touches_find(const struct plan *plan, const struct op *op, struct touch touch[OPERANDS_MAX])
{
    struct sizes z = sizes_of(plan, op);
    int64_t written = region_total(&op->operand[UNARY_DESTINATION]);
    memset(touch, 0, OPERANDS_MAX * sizeof *touch);
    switch (op->kind) {
    case OP_ATTEND_FORWARD:
        forward(&plan->c, &z, touch);
        break;
    case OP_ATTEND_BACKWARD:
        backward(&z, touch);
        break;
    case OP_ROW_DOT: // D = rowsum(dO * O)
        touch[ROW_DOT_DO] = reads(z.out * z.dtype);
        touch[ROW_DOT_O] = reads(z.out * 4);
        touch[ROW_DOT_D] = writes(z.row * 4);
        break;
    case OP_ADD:    // destination += source
    case OP_MAX:    // destination = max(destination, source)
    case OP_REDUCE: // destination = destination (reduction) source
        touch[UNARY_SOURCE] = reads(written);
        touch[UNARY_DESTINATION] = adds_to(written);
        break;
    case OP_CONVERT: // destination (dtype) = source (fp32)
        touch[UNARY_SOURCE] = reads(written / z.dtype * 4);
        touch[UNARY_DESTINATION] = writes(written);
        break;
    case OP_DIVIDE: // destination /= value
        touch[UNARY_DESTINATION] = adds_to(written);
        break;
    case OP_FILL: // destination = value
        touch[UNARY_DESTINATION] = writes(written);
        break;
    case OP_FILL_HEADS: // destination [heads][q rows] = source [heads]
        touch[UNARY_SOURCE] = reads(z.head * 4);
        touch[UNARY_DESTINATION] = writes(z.row * 4);
        break;
    case OP_SINK_GRAD: // dsink[h] += -sum over rows of exp(sink[h] - LSE) D
        touch[SINK_GRAD_SINK] = reads(z.head * 4);
        touch[SINK_GRAD_LSE] = reads(z.row * 4);
        touch[SINK_GRAD_D] = reads(z.row * 4);
        touch[SINK_GRAD_DSINK] = adds_to(z.head * 4);
        break;
    case OP_PRODUCT:
    case OP_ACTIVATE:
    case OP_ACTIVATE_BACKWARD:
    case OP_COLUMN_SUM:
    case OP_SUM_PARTS:
        matrices(plan, op, touch);
        break;
    case OP_COPY:
    case OP_EXCHANGE:
    case OP_KINDS:
        break;
    }
}
