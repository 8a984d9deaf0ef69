// SPDX-License-Identifier: Apache-2.0
// Checks and their arrays: everything but the verdict.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/state.h"
#include "judge/dtype.h"
#include "judge/inputs.h"
#include "plan/shard.h"

_Static_assert((int)CPATTN_QUERIES == (int)SIDE_Q && (int)CPATTN_KEYS == (int)SIDE_KV,
               "sides agree");

// ---- tensors ------------------------------------------------------------------------------------

static const struct {
    const char *name;
    enum shard_side side;
    bool is_wide; // of head_dim_v, else of head_dim_qk
    enum input_tensor input;
    enum report_tensor report;
} tensors[CPATTN_TENSORS] = {
    [CPATTN_TENSOR_Q] = {"q", SIDE_Q, false, INPUT_Q, 0},
    [CPATTN_TENSOR_K] = {"k", SIDE_KV, false, INPUT_K, 0},
    [CPATTN_TENSOR_V] = {"v", SIDE_KV, true, INPUT_V, 0},
    [CPATTN_TENSOR_DO] = {"do", SIDE_Q, true, INPUT_DO, 0},
    [CPATTN_TENSOR_OUT] = {"out", SIDE_Q, true, 0, TENSOR_OUT},
    [CPATTN_TENSOR_LSE] = {"lse", SIDE_Q, false, 0, TENSOR_LSE},
    [CPATTN_TENSOR_DQ] = {"dq", SIDE_Q, false, 0, TENSOR_DQ},
    [CPATTN_TENSOR_DK] = {"dk", SIDE_KV, false, 0, TENSOR_DK},
    [CPATTN_TENSOR_DV] = {"dv", SIDE_KV, true, 0, TENSOR_DV},
};

static bool is_tensor(enum cpattn_tensor tensor)
{
    return (int)tensor >= 0 && tensor < CPATTN_TENSORS;
}

const char *cpattn_tensor_name(enum cpattn_tensor tensor)
{
    return is_tensor(tensor) ? tensors[tensor].name : NULL;
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
    return tensor == CPATTN_TENSOR_LSE ? DTYPE_FP32 : c->dtype;
}

struct cpattn_shape cpattn_check_shape(const struct cpattn_check *check, enum cpattn_tensor tensor)
{
    const struct cp_case *c = &check->c;
    if (!is_tensor(tensor))
        return (struct cpattn_shape){0};
    bool queries = tensors[tensor].side == SIDE_Q;
    int dim = tensors[tensor].is_wide ? c->head_dim_v : c->head_dim_qk;
    return (struct cpattn_shape){.rows = check->rows[tensors[tensor].side].count,
                                 .heads = queries ? c->heads : c->kv_heads,
                                 .dim = tensor == CPATTN_TENSOR_LSE ? 1 : dim};
}

static size_t element_bytes(const struct cpattn_check *check, enum cpattn_tensor tensor)
{
    return tensor_dtype(&check->c, tensor) == DTYPE_FP32 ? 4 : 2;
}

static void *element_at(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, int64_t row, int head)
{
    int64_t outer = array->inner_rows > 0 ? row / array->inner_rows : 0;
    int64_t inner = array->inner_rows > 0 ? row % array->inner_rows : row;
    int64_t at =
        outer * array->outer_stride + inner * array->row_stride + head * array->head_stride;
    return (char *)array->data + at * (int64_t)element_bytes(check, tensor);
}

void array_read(const struct cpattn_check *check, enum cpattn_tensor tensor,
                const struct cpattn_array *array, int64_t row, int head, float *values)
{
    dtype_read(tensor_dtype(&check->c, tensor), element_at(check, tensor, array, row, head), 0,
               cpattn_check_shape(check, tensor).dim, values);
}

void array_write(const struct cpattn_check *check, enum cpattn_tensor tensor,
                 const struct cpattn_array *array, int64_t row, int head, const float *values)
{
    dtype_write(tensor_dtype(&check->c, tensor), values, cpattn_check_shape(check, tensor).dim,
                element_at(check, tensor, array, row, head));
}

// A dimension of an array.
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

// Whether elements of different rows and heads are sure to lie apart: each stride steps over all
// that smaller ones reach.
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

enum status array_check(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, struct error *error)
{
    struct cpattn_shape s = cpattn_check_shape(check, tensor);
    int64_t inner = array->inner_rows > 0 ? array->inner_rows : s.rows;
    struct extent extents[3] = {
        {magnitude(array->head_stride), s.heads},
        {magnitude(array->row_stride), inner < s.rows ? inner : s.rows},
        {magnitude(array->outer_stride), inner > 0 ? (s.rows + inner - 1) / inner : 0}};
    if (!array->data)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s has no memory", tensors[tensor].name);
    if (array->inner_rows >= 0 && extents_fit(extents, s.dim))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s has strides of %lld (outer), %lld (row) and %lld (head) elements: its "
                     "%lld rows of %d heads of %d elements would overlap",
                     tensors[tensor].name, (long long)array->outer_stride,
                     (long long)array->row_stride, (long long)array->head_stride, (long long)s.rows,
                     s.heads, s.dim);
}

// ---- errors -------------------------------------------------------------------------------------

enum cpattn_status status_public(enum status status, const struct error *from,
                                 struct cpattn_error *error)
{
    if (error) {
        error->status = (enum cpattn_status)status;
        snprintf(error->text, sizeof(error->text), "%s", status == STATUS_OK ? "" : from->text);
    }
    return (enum cpattn_status)status;
}

// ---- life ---------------------------------------------------------------------------------------

// Through text, which both libraries understand whatever their versions are.
static enum status case_copy(const struct cpattn_case *from, struct cp_case *to,
                             struct error *error)
{
    enum status status = STATUS_OK;
    const struct cpattn_field *field = NULL;
    char *text = malloc(CASE_VALUE_MAX);
    if (!text)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a case");
    case_init(to);
    while (status == STATUS_OK && (field = cpattn_field_next(field))) {
        const char *name = cpattn_field_name(field);
        if (cpattn_case_get(from, name, text, CASE_VALUE_MAX) >= 0)
            status = case_set(to, name, text, error);
    }
    free(text);
    return status == STATUS_OK ? case_check(to, error) : status;
}

static enum status case_admit(const struct cp_case *c, int rank, struct error *error)
{
    if (rank < 0 || rank >= c->world_size)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "rank is %d; a case with world_size %d has ranks 0 to %d", rank,
                         c->world_size, c->world_size - 1);
    if (c->bias != BIAS_NONE)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "a check of a case with a bias is not built yet; bias none is");
    if (c->softmax == SOFTMAX_LEARNABLE)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "a check of a case with learnable sinks is not built yet; softmax vanilla "
                         "and off_by_one are");
    return STATUS_OK;
}

enum cpattn_status cpattn_check_create(const struct cpattn_case *c, int rank,
                                       struct cpattn_check **check, struct cpattn_error *error)
{
    struct error reason = {0};
    struct cpattn_check *made = calloc(1, sizeof(*made));
    if (!made) {
        error_set(&reason, STATUS_RESOURCE_EXHAUSTED, "no memory for a check");
        return status_public(STATUS_RESOURCE_EXHAUSTED, &reason, error);
    }
    enum status status = case_copy(c, &made->c, &reason);
    if (status == STATUS_OK)
        status = case_admit(&made->c, rank, &reason);
    for (int side = SIDE_Q; side <= SIDE_KV && status == STATUS_OK; side++)
        status = rows_of_rank(&made->c, rank, (enum shard_side)side, &made->rows[side], &reason);
    if (status == STATUS_OK)
        *check = made;
    else
        cpattn_check_destroy(made);
    return status_public(status, &reason, error);
}

void cpattn_check_destroy(struct cpattn_check *check)
{
    if (!check)
        return;
    rows_fini(&check->rows[SIDE_Q]);
    rows_fini(&check->rows[SIDE_KV]);
    room_fini(&check->room);
    free(check);
}

// ---- tokens -------------------------------------------------------------------------------------

static enum status place_check(const struct cp_case *c, enum shard_side side, int64_t row,
                               int32_t sequence, int64_t position, struct error *error)
{
    if (sequence < 0 || sequence >= c->batch)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "row %lld is of sequence %d; the case has sequences 0 to %d",
                         (long long)row, sequence, c->batch - 1);
    if (position >= 0 && position < case_occupied(c, side, sequence))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "row %lld is position %lld of sequence %d, which has positions 0 to %lld",
                     (long long)row, (long long)position, sequence,
                     (long long)case_occupied(c, side, sequence) - 1);
}

enum cpattn_status cpattn_check_place(struct cpattn_check *check, enum cpattn_side side,
                                      const int32_t *sequences, const int64_t *positions,
                                      int64_t count, struct cpattn_error *error)
{
    struct error reason = {0};
    struct rows rows = {0};
    enum status status = STATUS_OK;
    if ((int)side < CPATTN_QUERIES || side > CPATTN_KEYS || count < 0)
        status =
            error_set(&reason, STATUS_INVALID_ARGUMENT,
                      "side is %d and the rows are %lld; sides are 0 and 1, and rows 0 or more",
                      (int)side, (long long)count);
    if (status == STATUS_OK)
        status = rows_alloc(&rows, count, &reason);
    for (int64_t row = 0; row < count && status == STATUS_OK; row++) {
        rows.sequence[row] = sequences ? sequences[row] : 0;
        rows.position[row] = positions[row];
        status = place_check(&check->c, (enum shard_side)side, row, rows.sequence[row],
                             positions[row], &reason);
    }
    if (status == STATUS_OK)
        status = rows_order(&check->c, (enum shard_side)side, &rows, &reason);
    if (status != STATUS_OK) {
        rows_fini(&rows);
        return status_public(status, &reason, error);
    }
    rows_fini(&check->rows[side]);
    check->rows[side] = rows;
    return status_public(STATUS_OK, &reason, error);
}

static bool has_row(const struct cpattn_check *check, enum cpattn_side side, int64_t row)
{
    return (side == CPATTN_QUERIES || side == CPATTN_KEYS) && row >= 0 &&
           row < check->rows[side].count;
}

int32_t cpattn_check_sequence(const struct cpattn_check *check, enum cpattn_side side, int64_t row)
{
    return has_row(check, side, row) ? check->rows[side].sequence[row] : -1;
}

int64_t cpattn_check_position(const struct cpattn_check *check, enum cpattn_side side, int64_t row)
{
    return has_row(check, side, row) ? check->rows[side].position[row] : -1;
}

// ---- inputs -------------------------------------------------------------------------------------

static void row_fill(const struct cpattn_check *check, enum cpattn_tensor tensor,
                     const struct cpattn_array *array, int64_t row)
{
    const struct cp_case *c = &check->c;
    enum shard_side side = tensors[tensor].side;
    const struct rows *rows = &check->rows[side];
    struct cpattn_shape shape = cpattn_check_shape(check, tensor);
    float values[HEAD_DIM_MAX];
    bool padding = rows->position[row] >= case_length(c, side, rows->sequence[row]);
    for (int i = 0; i < shape.dim; i++)
        values[i] = NAN;
    for (int head = 0; head < shape.heads; head++) {
        if (!padding)
            input_token_head(c, tensors[tensor].input, rows->sequence[row], rows->position[row],
                             head, values);
        array_write(check, tensor, array, row, head, values);
    }
}

enum cpattn_status cpattn_check_fill(const struct cpattn_check *check, enum cpattn_tensor tensor,
                                     const struct cpattn_array *array, struct cpattn_error *error)
{
    struct error reason = {0};
    enum status status = STATUS_OK;
    if (!is_tensor(tensor) || !tensors[tensor].input)
        status = error_set(&reason, STATUS_INVALID_ARGUMENT,
                           "tensor %d is no input; inputs are q, k, v and do", (int)tensor);
    if (status == STATUS_OK)
        status = array_check(check, tensor, array, &reason);
    for (int64_t row = 0; status == STATUS_OK && row < cpattn_check_shape(check, tensor).rows;
         row++)
        row_fill(check, tensor, array, row);
    return status_public(status, &reason, error);
}
