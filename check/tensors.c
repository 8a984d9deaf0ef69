// SPDX-License-Identifier: Apache-2.0
// The tensors of a check, and the caller's arrays of them.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "check/state.h"
#include "plan/bias.h"

// Properties of a tensor: what a row belongs to, its role, the elements of a row and head.
enum rows_of { ROWS_TOKENS, ROWS_BIAS, ROWS_ONE };
enum kind { KIND_INPUT, KIND_RESULT, KIND_GRADIENT };
enum width { WIDTH_QK, WIDTH_V, WIDTH_ONE, WIDTH_KEYS };

static const struct {
    const char *name;
    enum kind kind;
    enum rows_of rows;
    enum shard_side side;
    enum width width;
    enum report_tensor report;
} tensors[CPATTN_TENSORS] = {
    [CPATTN_TENSOR_Q] = {"q", KIND_INPUT, ROWS_TOKENS, SIDE_Q, WIDTH_QK, 0},
    [CPATTN_TENSOR_K] = {"k", KIND_INPUT, ROWS_TOKENS, SIDE_KV, WIDTH_QK, 0},
    [CPATTN_TENSOR_V] = {"v", KIND_INPUT, ROWS_TOKENS, SIDE_KV, WIDTH_V, 0},
    [CPATTN_TENSOR_DO] = {"do", KIND_INPUT, ROWS_TOKENS, SIDE_Q, WIDTH_V, 0},
    [CPATTN_TENSOR_OUT] = {"out", KIND_RESULT, ROWS_TOKENS, SIDE_Q, WIDTH_V, TENSOR_OUT},
    [CPATTN_TENSOR_LSE] = {"lse", KIND_RESULT, ROWS_TOKENS, SIDE_Q, WIDTH_ONE, TENSOR_LSE},
    [CPATTN_TENSOR_DQ] = {"dq", KIND_GRADIENT, ROWS_TOKENS, SIDE_Q, WIDTH_QK, TENSOR_DQ},
    [CPATTN_TENSOR_DK] = {"dk", KIND_GRADIENT, ROWS_TOKENS, SIDE_KV, WIDTH_QK, TENSOR_DK},
    [CPATTN_TENSOR_DV] = {"dv", KIND_GRADIENT, ROWS_TOKENS, SIDE_KV, WIDTH_V, TENSOR_DV},
    [CPATTN_TENSOR_BIAS] = {"bias", KIND_INPUT, ROWS_BIAS, SIDE_Q, WIDTH_KEYS, 0},
    [CPATTN_TENSOR_SINK] = {"sink", KIND_INPUT, ROWS_ONE, SIDE_Q, WIDTH_ONE, 0},
    [CPATTN_TENSOR_DBIAS] = {"dbias", KIND_GRADIENT, ROWS_BIAS, SIDE_Q, WIDTH_KEYS, TENSOR_DBIAS},
    [CPATTN_TENSOR_DSINK] = {"dsink", KIND_GRADIENT, ROWS_ONE, SIDE_Q, WIDTH_ONE, TENSOR_DSINK},
    [CPATTN_TENSOR_MAX_LOGIT] = {"max_logit", KIND_RESULT, ROWS_ONE, SIDE_Q, WIDTH_ONE,
                                 TENSOR_MAX_LOGIT},
};

bool tensor_exists(enum cpattn_tensor tensor)
{
    return (int)tensor >= 0 && tensor < CPATTN_TENSORS;
}

const char *cpattn_tensor_name(enum cpattn_tensor tensor)
{
    return tensor_exists(tensor) ? tensors[tensor].name : NULL;
}

bool tensor_is_input(enum cpattn_tensor tensor)
{
    return tensors[tensor].kind == KIND_INPUT;
}

enum input_tensor tensor_input(enum cpattn_tensor tensor)
{
    switch (tensor) {
    case CPATTN_TENSOR_Q:
        return INPUT_Q;
    case CPATTN_TENSOR_K:
        return INPUT_K;
    case CPATTN_TENSOR_V:
        return INPUT_V;
    default:
        return INPUT_DO;
    }
}

bool tensor_has_tokens(enum cpattn_tensor tensor)
{
    return tensors[tensor].rows == ROWS_TOKENS;
}

enum shard_side tensor_side(enum cpattn_tensor tensor)
{
    return tensors[tensor].side;
}

enum report_tensor tensor_report(enum cpattn_tensor tensor)
{
    return tensors[tensor].report;
}

enum case_dtype tensor_dtype(const struct cp_case *c, enum cpattn_tensor tensor)
{
    return tensors[tensor].width == WIDTH_ONE ? DTYPE_FP32 : c->dtype;
}

// True if the case has the feature that the tensor needs; ignores training.
static bool has_feature(const struct cp_case *c, enum cpattn_tensor tensor)
{
    if (tensors[tensor].rows == ROWS_BIAS)
        return c->bias != BIAS_NONE;
    if (tensor == CPATTN_TENSOR_MAX_LOGIT)
        return c->max_logit;
    return tensors[tensor].rows != ROWS_ONE || c->softmax == SOFTMAX_LEARNABLE;
}

enum status tensor_check(const struct cp_case *c, enum cpattn_tensor tensor, struct error *error)
{
    const char *name = tensors[tensor].name;
    if (tensors[tensor].kind == KIND_GRADIENT && !c->training)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s is a gradient, and the case has training false", name);
    if (has_feature(c, tensor))
        return STATUS_OK;
    if (tensors[tensor].rows == ROWS_BIAS)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the case has bias none, and no %s", name);
    return error_set(error, STATUS_INVALID_ARGUMENT, "the case has no %s: it has %s", name,
                     tensor == CPATTN_TENSOR_MAX_LOGIT ? "max_logit false"
                                                       : "a softmax that is not learnable");
}

static int32_t tensor_heads(const struct cp_case *c, enum cpattn_tensor tensor)
{
    if (tensors[tensor].rows == ROWS_BIAS)
        return bias_has_heads(c) ? c->heads : 1;
    return tensors[tensor].side == SIDE_Q ? c->heads : c->kv_heads;
}

static int32_t tensor_dim(const struct cp_case *c, enum cpattn_tensor tensor)
{
    switch (tensors[tensor].width) {
    case WIDTH_QK:
        return c->head_dim_qk;
    case WIDTH_V:
        return c->head_dim_v;
    case WIDTH_KEYS:
        return (int32_t)c->seqlen_kv;
    default:
        return 1;
    }
}

static int64_t tensor_rows(const struct cpattn_check *check, enum cpattn_tensor tensor)
{
    if (tensors[tensor].rows == ROWS_TOKENS)
        return check->rows[tensors[tensor].side].count;
    return tensors[tensor].rows == ROWS_BIAS ? check->bias.rows : 1;
}

struct cpattn_shape cpattn_check_shape(const struct cpattn_check *check, enum cpattn_tensor tensor)
{
    struct error unheard;
    if (!tensor_exists(tensor) || tensor_check(&check->c, tensor, &unheard) != STATUS_OK)
        return (struct cpattn_shape){0};
    return (struct cpattn_shape){.rows = tensor_rows(check, tensor),
                                 .heads = tensor_heads(&check->c, tensor),
                                 .dim = tensor_dim(&check->c, tensor)};
}

float *values_alloc(const struct cp_case *c, struct error *error)
{
    int64_t count = c->seqlen_kv > HEAD_DIM_MAX ? c->seqlen_kv : HEAD_DIM_MAX;
    float *values = malloc((size_t)count * sizeof(*values));
    if (!values)
        error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a row of %lld elements",
                  (long long)count);
    return values;
}

size_t tensor_element_bytes(const struct cp_case *c, enum cpattn_tensor tensor)
{
    return tensor_dtype(c, tensor) == DTYPE_FP32 ? 4 : 2;
}

int64_t array_offset(const struct cpattn_array *array, int64_t row, int head)
{
    int64_t outer = array->inner_rows > 0 ? row / array->inner_rows : 0;
    int64_t inner = array->inner_rows > 0 ? row % array->inner_rows : row;
    return outer * array->outer_stride + inner * array->row_stride + head * array->head_stride;
}

// Stride in elements and size of a dimension of an array.
struct extent {
    int64_t stride, count;
};

static int extent_compare(const void *a, const void *b)
{
    int64_t x = ((const struct extent *)a)->stride, y = ((const struct extent *)b)->stride;
    return x < y ? -1 : x > y;
}

static int64_t magnitude(int64_t stride)
{
    return stride == INT64_MIN ? INT64_MAX : llabs(stride);
}

// True if elements of different rows and heads cannot overlap: each stride is larger than the
// extent of all smaller strides.
static bool extents_fit(struct extent extents[3], int64_t dim)
{
    int64_t reach = dim, step;
    qsort(extents, 3, sizeof(*extents), extent_compare);
    for (int i = 0; i < 3; i++) {
        if (extents[i].count <= 1)
            continue;
        if (extents[i].stride < reach ||
            __builtin_mul_overflow(extents[i].stride, extents[i].count - 1, &step) ||
            __builtin_add_overflow(reach, step, &reach) || reach > INT64_MAX / 8)
            return false;
    }
    return true;
}

enum status array_memory_check(const struct cp_case *c, enum cpattn_tensor tensor,
                               const struct cpattn_array *array, struct error *error)
{
    const char *name = tensors[tensor].name;
    size_t element = tensor_element_bytes(c, tensor);
    if (!array->data)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s has no memory", name);
    if ((uintptr_t)array->data % element != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the memory of %s is not aligned; accepted is memory aligned to %zu bytes",
                         name, element);
    if (array->inner_rows < 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "inner_rows of %s is %lld; accepted is 0 or more", name,
                         (long long)array->inner_rows);
    return STATUS_OK;
}

enum status array_check(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, struct error *error)
{
    struct cpattn_shape s = cpattn_check_shape(check, tensor);
    if (s.rows == 0 && !array->data) // as cudaMalloc() returns for no bytes
        return STATUS_OK;
    enum status status = array_memory_check(&check->c, tensor, array, error);
    int64_t inner = array->inner_rows > 0 ? array->inner_rows : s.rows;
    struct extent extents[3] = {
        {magnitude(array->head_stride), s.heads},
        {magnitude(array->row_stride), inner < s.rows ? inner : s.rows},
        {magnitude(array->outer_stride), inner > 0 ? (s.rows + inner - 1) / inner : 0}};
    if (status != STATUS_OK || s.rows == 0 || extents_fit(extents, s.dim))
        return status;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s has strides of %lld (outer), %lld (row) and %lld (head) elements: its "
                     "%lld rows of %d heads of %d elements would overlap",
                     tensors[tensor].name, (long long)array->outer_stride,
                     (long long)array->row_stride, (long long)array->head_stride, (long long)s.rows,
                     s.heads, s.dim);
}
