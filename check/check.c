// SPDX-License-Identifier: Apache-2.0
// Checks, their tokens and their inputs.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/device.h"
#include "check/state.h"
#include "judge/inputs.h"
#include "plan/bias.h"
#include "plan/shard.h"

_Static_assert((int)CPATTN_QUERIES == (int)SIDE_Q && (int)CPATTN_KEYS == (int)SIDE_KV,
               "sides agree");

// ---- life ---------------------------------------------------------------------------------------

// Copies the case field by field as text, because libcpattn may have another version.
static enum status case_copy(const struct cpattn_case *from, struct cp_case *to,
                             struct error *error)
{
    enum status status = STATUS_OK;
    const struct cpattn_field *field = NULL;
    char *text = malloc(CASE_VALUE_MAX);
    if (!text)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a case");
    case_init(to);
    if (cpattn_case_get(from, "heads", text, CASE_VALUE_MAX) < 0)
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "this is a job of another kind; accepted is a case of attention");
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
    return STATUS_OK;
}

// Counts the tokens before each sequence of the case, and lists the tokens of the rank.
static enum status side_make(struct cpattn_check *check, enum shard_side side, struct error *error)
{
    const struct cp_case *c = &check->c;
    int64_t *first = calloc((size_t)c->batch + 1, sizeof(*first));
    if (!first)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d sequences", c->batch);
    for (int32_t i = 0; i < c->batch; i++)
        first[i + 1] = first[i] + case_length(c, side, i);
    check->first[side] = first;
    return rows_of_rank(c, check->rank, side, &check->rows[side], error);
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
    made->rank = rank;
    for (int side = SIDE_Q; side <= SIDE_KV && status == STATUS_OK; side++)
        status = side_make(made, (enum shard_side)side, &reason);
    if (status == STATUS_OK)
        status = bias_lines_make(made, &made->bias, &reason);
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
    for (int side = SIDE_Q; side <= SIDE_KV; side++) {
        rows_fini(&check->rows[side]);
        free(check->first[side]);
    }
    bias_lines_fini(&check->bias);
    device_close(check);
    given_destroy(check->given);
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

static enum status place_rows(const struct cp_case *c, enum shard_side side,
                              const int32_t *sequences, const int64_t *positions, int64_t count,
                              struct rows *rows, struct error *error)
{
    enum status status = rows_alloc(c, side, count, rows, error);
    for (int64_t row = 0; row < count && status == STATUS_OK; row++) {
        rows->sequence[row] = sequences ? sequences[row] : 0;
        rows->position[row] = positions[row];
        status = place_check(c, side, row, rows->sequence[row], positions[row], error);
    }
    return status == STATUS_OK ? rows_order(c, side, rows, error) : status;
}

// Replaces the check's rows by *rows, and returns the previous ones there. On failure the check is
// unchanged.
static enum status place_commit(struct cpattn_check *check, enum shard_side side, struct rows *rows,
                                struct error *error)
{
    struct bias_lines lines;
    struct rows before = check->rows[side];
    check->rows[side] = *rows;
    enum status status = bias_lines_make(check, &lines, error);
    if (status != STATUS_OK) {
        check->rows[side] = before;
        return status;
    }
    *rows = before;
    bias_lines_fini(&check->bias);
    check->bias = lines;
    check->placed = true;
    return STATUS_OK;
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
        status = place_rows(&check->c, (enum shard_side)side, sequences, positions, count, &rows,
                            &reason);
    if (status == STATUS_OK)
        status = place_commit(check, (enum shard_side)side, &rows, &reason);
    rows_fini(&rows);
    return status_public(status, &reason, error);
}

void cpattn_check_sums(struct cpattn_check *check, enum cpattn_sums sums)
{
    check->sums = sums;
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

static void nan_fill(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = NAN;
}

static void bias_values(const struct cpattn_check *check, int64_t row, int head, float *values)
{
    struct element at = bias_row_element(check, row);
    if (check->bias.line_of_row[row] >= 0)
        input_bias(&check->c, at.sequence, head, at.position, 0, check->c.seqlen_kv, values);
    else
        nan_fill(values, check->c.seqlen_kv);
}

static void token_values(const struct cpattn_check *check, enum cpattn_tensor tensor, int64_t row,
                         int head, float *values)
{
    enum shard_side side = tensor_side(tensor);
    const struct rows *rows = &check->rows[side];
    if (row_is_padding(check, side, row))
        nan_fill(values, cpattn_check_shape(check, tensor).dim);
    else
        input_token_head(&check->c, tensor_input(tensor), rows->sequence[row], rows->position[row],
                         head, values);
}

static void row_fill(const struct cpattn_check *check, enum cpattn_tensor tensor,
                     const struct cpattn_array *array, int64_t row, float *values)
{
    for (int head = 0; head < cpattn_check_shape(check, tensor).heads; head++) {
        if (tensor == CPATTN_TENSOR_BIAS)
            bias_values(check, row, head, values);
        else if (tensor == CPATTN_TENSOR_SINK)
            values[0] = input_sink(&check->c, head);
        else
            token_values(check, tensor, row, head, values);
        array_write(check, tensor, array, row, head, values);
    }
}

static enum status input_check(const struct cpattn_check *check, enum cpattn_tensor tensor,
                               const struct cpattn_array *array, struct error *error)
{
    if (!tensor_exists(tensor) || !tensor_is_input(tensor))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensor %d is no input; inputs are q, k, v, do, bias and sink",
                         (int)tensor);
    enum status status = tensor_check(&check->c, tensor, error);
    return status == STATUS_OK ? array_check(check, tensor, array, error) : status;
}

static enum status host_fill(const struct cpattn_check *check, enum cpattn_tensor tensor,
                             const struct cpattn_array *array, struct error *error)
{
    float *values = values_alloc(&check->c, error);
    if (!values)
        return STATUS_RESOURCE_EXHAUSTED;
    for (int64_t row = 0; row < cpattn_check_shape(check, tensor).rows; row++)
        row_fill(check, tensor, array, row, values);
    free(values);
    return STATUS_OK;
}

static enum status bias_put(const struct cpattn_check *check, const struct cpattn_array *array,
                            struct error *error)
{
    struct cpattn_array host;
    enum status status = device_mirror(check, CPATTN_TENSOR_BIAS, &host, error);
    if (status == STATUS_OK)
        status = host_fill(check, CPATTN_TENSOR_BIAS, &host, error);
    if (status == STATUS_OK)
        status = device_put(check, CPATTN_TENSOR_BIAS, array, &host, error);
    free(host.data);
    return status;
}

enum cpattn_status cpattn_check_fill(const struct cpattn_check *check, enum cpattn_tensor tensor,
                                     const struct cpattn_array *array, struct cpattn_error *error)
{
    struct error reason = {0};
    enum status status = input_check(check, tensor, array, &reason);
    if (status == STATUS_OK && !check->device)
        status = host_fill(check, tensor, array, &reason);
    else if (status == STATUS_OK && check->placed && tensor == CPATTN_TENSOR_BIAS)
        status = bias_put(check, array, &reason);
    else if (status == STATUS_OK)
        status = device_fill(check, tensor, array, &reason);
    return status_public(status, &reason, error);
}
