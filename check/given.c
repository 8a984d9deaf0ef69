// SPDX-License-Identifier: Apache-2.0
// Inputs that the caller gives instead of drawn ones.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/device.h"
#include "judge/dtype.h"
#include "judge/source.h"

#define GIVEN 4 // q, k, v and dO, the first values of enum cpattn_tensor and whole_tensor

_Static_assert((int)CPATTN_TENSOR_Q == (int)WHOLE_Q && (int)CPATTN_TENSOR_K == (int)WHOLE_K &&
                   (int)CPATTN_TENSOR_V == (int)WHOLE_V && (int)CPATTN_TENSOR_DO == (int)WHOLE_DO,
               "inputs are in the order of whole tensors");

struct given {
    struct cp_case c; // the check's case without a source
    struct input_source source;
    void *tensors[GIVEN];
};

void given_destroy(struct given *given)
{
    if (!given)
        return;
    source_fini(&given->source);
    for (int i = 0; i < GIVEN; i++)
        free(given->tensors[i]);
    free(given);
}

struct cpattn_shape cpattn_check_whole(const struct cpattn_check *check, enum cpattn_tensor tensor)
{
    struct cpattn_shape shape = cpattn_check_shape(check, tensor);
    if ((int)tensor < 0 || (int)tensor >= GIVEN)
        return (struct cpattn_shape){0};
    shape.rows = whole_rows(&check->c, tensor_side(tensor));
    return shape;
}

static enum status tensor_take(struct given *g, const struct cpattn_check *check,
                               enum cpattn_tensor tensor, const struct cpattn_array *array,
                               struct error *error)
{
    struct cpattn_shape s = cpattn_check_whole(check, tensor);
    size_t element = tensor_element_bytes(&check->c, tensor), width = (size_t)s.dim * element;
    char *to = malloc((size_t)(s.rows * s.heads) * width + 1);
    if (!to)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a copy of %s",
                         cpattn_tensor_name(tensor));
    g->tensors[tensor] = to;
    if (check->device)
        return device_get(check, tensor, array, s, to, error);
    for (int64_t row = 0; row < s.rows; row++)
        for (int head = 0; head < s.heads; head++, to += width)
            memcpy(to,
                   (const char *)array->data + array_offset(array, row, head) * (int64_t)element,
                   width);
    return STATUS_OK;
}

// INVALID_ARGUMENT if an element of a token is not finite: the reference would not be finite
// either. The caller skips padding, which may hold anything.
static enum status row_check(const struct cp_case *c, enum cpattn_tensor tensor, const void *data,
                             int64_t row, struct cpattn_shape s, const int64_t place[2],
                             struct error *error)
{
    float values[HEAD_DIM_MAX];
    for (int head = 0; head < s.heads; head++) {
        dtype_read(c->dtype, data, (row * s.heads + head) * s.dim, s.dim, values);
        for (int dim = 0; dim < s.dim; dim++)
            if (!isfinite(values[dim]))
                return error_set(error, STATUS_INVALID_ARGUMENT,
                                 "%s is %g at sequence %lld, position %lld, head %d, dim %d; "
                                 "accepted are finite numbers",
                                 cpattn_tensor_name(tensor), (double)values[dim],
                                 (long long)place[0], (long long)place[1], head, dim);
    }
    return STATUS_OK;
}

static enum status tensor_is_finite(const struct given *g, const struct cpattn_check *check,
                                    enum cpattn_tensor tensor, struct error *error)
{
    const struct cp_case *c = &g->c;
    enum shard_side side = tensor_side(tensor);
    struct cpattn_shape s = cpattn_check_whole(check, tensor);
    enum status status = STATUS_OK;
    for (int32_t sequence = 0; sequence < c->batch; sequence++) {
        int64_t first = whole_row_first(c, side, sequence), step = whole_row_step(c);
        int64_t length = case_length(c, side, sequence);
        for (int64_t i = 0; i < length && status == STATUS_OK; i++)
            status = row_check(c, tensor, g->tensors[tensor], first + i * step, s,
                               (int64_t[]){sequence, i}, error);
    }
    return status;
}

static enum status given_make(const struct cpattn_check *check,
                              const struct cpattn_array inputs[GIVEN], struct given **given,
                              struct error *error)
{
    const void *tensors[WHOLE_INPUTS] = {NULL};
    struct given *g = calloc(1, sizeof(*g));
    enum status status = STATUS_OK;
    if (!g)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for inputs");
    g->c = check->c;
    g->c.source = NULL;
    for (int t = 0; t < GIVEN && status == STATUS_OK; t++)
        if (inputs[t].data)
            status = tensor_take(g, check, (enum cpattn_tensor)t, &inputs[t], error);
    for (int t = 0; t < GIVEN && status == STATUS_OK; t++)
        if (inputs[t].data)
            status = tensor_is_finite(g, check, (enum cpattn_tensor)t, error);
    for (int t = 0; t < GIVEN; t++)
        tensors[t] = g->tensors[t];
    if (status == STATUS_OK)
        status = source_init(&g->source, &g->c, tensors, error);
    if (status == STATUS_OK)
        *given = g;
    else
        given_destroy(g);
    return status;
}

// Copies the arrays of the given inputs to taken[], and sets *there to their number.
// INVALID_ARGUMENT unless it is 0 or all of the case.
static enum status inputs_take(const struct cp_case *c, const struct cpattn_array *inputs,
                               int count, struct cpattn_array taken[GIVEN], int *there,
                               struct error *error)
{
    *there = 0;
    for (int t = 0; t < count && t < CPATTN_TENSORS; t++) {
        if (!inputs[t].data)
            continue;
        if (t >= GIVEN || (t == CPATTN_TENSOR_DO && !c->training))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s cannot be given: q, k and v can, and do where the case has "
                             "training true",
                             cpattn_tensor_name((enum cpattn_tensor)t));
        taken[t] = inputs[t];
        (*there)++;
        enum status status = array_memory_check(c, (enum cpattn_tensor)t, &taken[t], error);
        if (status != STATUS_OK)
            return status;
    }
    int all = c->training ? GIVEN : GIVEN - 1;
    if (*there == 0 || *there == all)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%d inputs are given; the case has %d: q, k, v%s, or none to have them drawn",
                     *there, all, c->training ? " and do" : "");
}

enum cpattn_status cpattn_check_give(struct cpattn_check *check, const struct cpattn_array *inputs,
                                     int count, struct cpattn_error *error)
{
    struct error reason = {0};
    struct cpattn_array taken[GIVEN] = {0};
    struct given *given = NULL;
    int there;
    enum status status = inputs_take(&check->c, inputs, count, taken, &there, &reason);
    if (status == STATUS_OK && there > 0)
        status = given_make(check, taken, &given, &reason);
    if (status == STATUS_OK) {
        given_destroy(check->given);
        check->given = given;
        check->given_count++;
        check->c.source = given ? &given->source : NULL;
        room_fini(&check->room); // it caches the previous inputs
    }
    return status_public(status, &reason, error);
}
