// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/job_judge.h"
#include "judge/collective.h"
#include "judge/linear.h"
#include "judge/linear_view.h"

static enum status linear_input(const struct job_place *place, const void *spec, int rank,
                                int index, void *data, struct error *error)
{
    return place->work.linear->fill(place->work.queue, spec, rank, (enum linear_tensor)index, data,
                                    error);
}

static size_t bytes_of(const struct linear *l, int rank, int index)
{
    return (size_t)linear_bytes(l, rank, (enum linear_tensor)index);
}

// Bytes that elements_compare() copies to the host at a time.
#define PIECE ((size_t)1 << 20)

// Adds the number of elements of `each` bytes in which a and b differ to the mismatches.
static enum status elements_compare(const struct job_place *place, const char *a, const char *b,
                                    size_t bytes, size_t each, struct figures *f,
                                    struct error *error)
{
    enum status status = STATUS_OK;
    char *pieces = malloc(2 * PIECE);
    if (!pieces)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the judge of a layer");
    for (size_t at = 0; at < bytes && status == STATUS_OK; at += PIECE) {
        size_t some = bytes - at < PIECE ? bytes - at : PIECE;
        status = place->work.collective->read(place->work.queue, a + at, some, pieces, error);
        if (status == STATUS_OK)
            status = place->work.collective->read(place->work.queue, b + at, some, pieces + PIECE,
                                                  error);
        for (size_t i = 0; i < some && status == STATUS_OK; i += each)
            f->mismatches += memcmp(pieces + i, pieces + PIECE + i, each) != 0;
    }
    free(pieces);
    return status;
}

// Checks that an input is unchanged: draws its elements again and compares them.
static enum status input_compare(struct job_place *place, const struct linear *l, int rank,
                                 int index, const char *data, struct figures *f,
                                 struct error *error)
{
    size_t bytes = bytes_of(l, rank, index), each = l->dtype == DTYPE_FP32 ? 4 : 2;
    void *right;
    enum status status = job_place_room(place, bytes, &right, error);
    if (status == STATUS_OK)
        status = linear_input(place, l, rank, index, right, error);
    if (status == STATUS_OK)
        status = elements_compare(place, right, data, bytes, each, f, error);
    f->elements = f->judged = (int64_t)(bytes / each);
    f->broken = f->mismatches > 0 ? RULE_PADDING : 0;
    return status;
}

static enum status layer_diagnose(const struct job_place *place, const struct linear *l, int rank,
                                  const void *const tensors[LINEAR_TENSORS],
                                  const struct figures figures[LINEAR_TENSORS],
                                  struct diagnosis *diagnosis, struct error *error)
{
    enum linear_tensor tensor = linear_broken(figures);
    const void *copies[LINEAR_TENSORS] = {NULL};
    if (tensor == LINEAR_TENSORS)
        return STATUS_OK;
    size_t bytes = bytes_of(l, rank, (int)tensor);
    void *copy = malloc(bytes + 1); // the tensor may be on a device
    if (!copy)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a result of a layer");
    copies[tensor] = copy;
    enum status status =
        place->work.collective->read(place->work.queue, tensors[tensor], bytes, copy, error);
    if (status == STATUS_OK)
        status = linear_diagnose(l, rank, copies, figures, diagnosis->text, &diagnosis->explained,
                                 &tensor, error);
    if (status == STATUS_OK && diagnosis->text[0])
        snprintf(diagnosis->name, sizeof(diagnosis->name), "%s", linear_tensor_name(l, tensor));
    free(copy);
    return status;
}

static enum status layer_judge(struct job_place *place, const void *spec, int rank,
                               const void *const tensors[JOB_TENSORS_MAX],
                               struct figures figures[JOB_TENSORS_MAX], struct diagnosis *diagnosis,
                               struct error *error)
{
    enum status status = STATUS_OK;
    bool results = false;
    for (int i = LINEAR_Y; i < LINEAR_TENSORS; i++)
        results = results || tensors[i];
    if (results)
        status = linear_judge_where(place->work.linear, place->work.queue, spec, rank, tensors,
                                    figures, error);
    if (results && status == STATUS_OK)
        status = layer_diagnose(place, spec, rank, tensors, figures, diagnosis, error);
    for (int i = 0; i < LINEAR_Y && status == STATUS_OK; i++)
        if (tensors[i])
            status = input_compare(place, spec, rank, i, tensors[i], &figures[i], error);
    return status;
}

static bool layer_same(const void *spec, int index)
{
    return linear_is_replicated(spec, (enum linear_tensor)index);
}

const struct job_judge job_judge_linear = {.kind = &job_kind_linear,
                                           .untouched = 0xff,
                                           .fill = linear_input,
                                           .judge = layer_judge,
                                           .same = layer_same};
