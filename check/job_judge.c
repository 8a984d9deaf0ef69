// SPDX-License-Identifier: Apache-2.0
#include "check/job_judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/collective_diagnosis.h"
#include "judge/linear.h"

#define UNTOUCHED 0xa5

// ---- collectives --------------------------------------------------------------------------------

static void collective_input(const void *spec, int rank, int index, void *data)
{
    (void)index;
    collective_fill(spec, rank, data);
}

static void receive_diagnose(const struct collective *c, int rank, const void *receive,
                             int64_t first_bad, struct diagnosis *diagnosis)
{
    struct collective_view v;
    struct collective_sample sample;
    collective_view_set(&v, c, rank);
    collective_sample_choose(&v, first_bad, &sample);
    for (int i = 0; i < sample.count; i++)
        sample.got[i] = collective_element(&v, receive, sample.index[i]);
    collective_diagnose(c, rank, &sample, UNTOUCHED, diagnosis);
}

static enum status collective_judge(const void *spec, int rank,
                                    const void *const tensors[JOB_TENSORS_MAX],
                                    struct figures figures[JOB_TENSORS_MAX],
                                    struct diagnosis *diagnosis, struct error *error)
{
    const struct collective *c = spec;
    const void *send = tensors[COLLECTIVE_SEND], *receive = tensors[COLLECTIVE_RECEIVE];
    struct figures *got = &figures[COLLECTIVE_RECEIVE];
    (void)error;
    if (receive)
        collective_judge_receive(c, rank, receive, got);
    if (receive && got->mismatches > 0)
        receive_diagnose(c, rank, receive, got->first_bad.position, diagnosis);
    if (send)
        collective_judge_send(c, rank, send, c->in_place ? receive : NULL,
                              &figures[COLLECTIVE_SEND]);
    return STATUS_OK;
}

static const struct job_judge of_collectives = {.kind = &job_kind_collective,
                                                .untouched = UNTOUCHED,
                                                .fill = collective_input,
                                                .judge = collective_judge};

// ---- linear layers ------------------------------------------------------------------------------

static void linear_input(const void *spec, int rank, int index, void *data)
{
    linear_fill(spec, rank, (enum linear_tensor)index, data);
}

// An input has to be as it was.
static enum status input_compare(const struct linear *l, int rank, int index, const char *data,
                                 struct figures *f, struct error *error)
{
    struct job_tensor tensor;
    (void)job_kind_linear.tensor(l, rank, index, &tensor);
    size_t bytes = (size_t)job_tensor_bytes(&tensor), each = (size_t)job_dtype_bytes(tensor.dtype);
    char *right = malloc(bytes);
    if (!right)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the judge of a layer");
    linear_fill(l, rank, (enum linear_tensor)index, right);
    f->elements = f->judged = (int64_t)(bytes / each);
    for (size_t at = 0; at < bytes; at += each)
        f->mismatches += memcmp(right + at, data + at, each) != 0;
    f->broken = f->mismatches > 0 ? RULE_PADDING : 0;
    free(right);
    return STATUS_OK;
}

static enum status linear_results(const struct linear *l, int rank,
                                  const void *const tensors[LINEAR_TENSORS],
                                  struct figures figures[LINEAR_TENSORS],
                                  struct diagnosis *diagnosis, struct error *error)
{
    enum linear_tensor tensor = LINEAR_TENSORS;
    enum status status = linear_judge(l, rank, tensors, figures, error);
    if (status == STATUS_OK)
        status = linear_diagnose(l, rank, tensors, figures, diagnosis->text, &diagnosis->explained,
                                 &tensor, error);
    if (status == STATUS_OK && diagnosis->text[0])
        snprintf(diagnosis->name, sizeof(diagnosis->name), "%s", linear_tensor_name(l, tensor));
    return status;
}

static enum status layer_judge(const void *spec, int rank,
                               const void *const tensors[JOB_TENSORS_MAX],
                               struct figures figures[JOB_TENSORS_MAX], struct diagnosis *diagnosis,
                               struct error *error)
{
    enum status status = STATUS_OK;
    bool results = false;
    for (int i = LINEAR_Y; i < LINEAR_TENSORS; i++)
        results = results || tensors[i];
    if (results)
        status = linear_results(spec, rank, tensors, figures, diagnosis, error);
    for (int i = 0; i < LINEAR_Y && status == STATUS_OK; i++)
        if (tensors[i])
            status = input_compare(spec, rank, i, tensors[i], &figures[i], error);
    return status;
}

static bool layer_same(const void *spec, int index)
{
    return linear_is_replicated(spec, (enum linear_tensor)index);
}

static const struct job_judge of_layers = {.kind = &job_kind_linear,
                                           .untouched = 0xff,
                                           .fill = linear_input,
                                           .judge = layer_judge,
                                           .same = layer_same};

// ---- all ----------------------------------------------------------------------------------------

const struct job_judge *job_judge_find(const struct job_kind *kind)
{
    static const struct job_judge *const judges[] = {&of_collectives, &of_layers};
    for (size_t i = 0; i < sizeof(judges) / sizeof(judges[0]); i++)
        if (judges[i]->kind == kind)
            return judges[i];
    return NULL;
}
