// SPDX-License-Identifier: Apache-2.0
// Checks of collectives and linear layers, in the memory of the host or of a device.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/job_judge.h"
#include "check/state.h"
#include "judge/collective.h"
#include "judge/digest.h"

_Static_assert(JOB_TENSORS_MAX <= REPORT_FIGURES_MAX, "a report holds all figures");

struct cpattn_check_job {
    struct job_spec spec;
    const struct job_judge *judge;
    int rank;
    const struct check_device *device; // tensors are in its memory; NULL: host memory
    struct device_judge *device_judge;
};

// ---- life ---------------------------------------------------------------------------------------

static enum status refuse_kind(const char *name, struct error *error)
{
    char known[ERROR_TEXT_MAX / 2] = "";
    size_t used = 0;
    for (const struct job_kind *const *kind = job_kinds; *kind; kind++)
        if (job_judge_find(*kind) && used < sizeof(known))
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? " or " : "",
                                     (*kind)->name);
    return error_set(error, STATUS_INVALID_ARGUMENT, "this is a job '%s'; accepted is %s", name,
                     known);
}

// Copies the spec field by field as text, because libcpattn may have another version.
static enum status spec_copy(const struct cpattn_case *from, struct job_spec *spec,
                             struct error *error)
{
    char text[JOB_FIELD_VALUE_MAX];
    const struct case_field *field = job_kind_fields(spec->kind);
    enum status status = STATUS_OK;
    job_spec_init(spec, spec->kind);
    for (; field->name && status == STATUS_OK; field++)
        if (cpattn_case_get(from, field->name, text, sizeof(text)) >= 0)
            status = job_spec_set(spec, field->name, text, error);
    return status == STATUS_OK ? job_spec_finish(spec, error) : status;
}

static enum status job_make(const struct cpattn_case *c, int rank, struct cpattn_check_job *job,
                            struct error *error)
{
    struct cpattn_error unknown = {.text = ""};
    enum cpattn_status known = cpattn_case_check(c, &unknown);
    job->spec.kind = job_kind_find(cpattn_case_kind(c));
    job->judge = job->spec.kind ? job_judge_find(job->spec.kind) : NULL;
    job->rank = rank;
    if (!job->judge)
        return refuse_kind(cpattn_case_kind(c), error);
    if (known != CPATTN_OK) // also for a field that the kind does not have
        return error_set(error, (enum status)known, "%s", unknown.text);
    enum status status = spec_copy(c, &job->spec, error);
    int size = status == STATUS_OK ? job_spec_needs(&job->spec).world_size : 1;
    if (status == STATUS_OK && (rank < 0 || rank >= size))
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "rank is %d; a job with world_size %d has ranks 0 to %d", rank, size,
                           size - 1);
    return status;
}

enum cpattn_status cpattn_check_job_create(const struct cpattn_case *c, int rank,
                                           struct cpattn_check_job **job,
                                           struct cpattn_error *error)
{
    struct error reason = {0};
    struct cpattn_check_job *made = calloc(1, sizeof(*made));
    enum status status =
        made ? job_make(c, rank, made, &reason)
             : error_set(&reason, STATUS_RESOURCE_EXHAUSTED, "no memory for a check");
    if (status == STATUS_OK)
        *job = made;
    else
        free(made);
    return status_public(status, &reason, error);
}

static void job_device_close(struct cpattn_check_job *job)
{
    if (job->device)
        job->device->close(job->device_judge);
    job->device = NULL;
    job->device_judge = NULL;
}

void cpattn_check_job_destroy(struct cpattn_check_job *job)
{
    if (job)
        job_device_close(job);
    free(job);
}

enum status job_device_use(struct cpattn_check_job *job, const struct check_device *table,
                           int device, void *stream, struct error *error)
{
    job_device_close(job);
    enum status status = table->open(device, stream, &job->device_judge, error);
    if (status == STATUS_OK)
        job->device = table;
    return status;
}

enum cpattn_status cpattn_check_job_device(struct cpattn_check_job *job, int device, void *stream,
                                           struct cpattn_error *error)
{
    struct error reason = {0};
    const struct check_device *table = NULL;
    enum status status = STATUS_OK;
    if (device < 0)
        job_device_close(job);
    else
        status = device_part(&table, &reason);
    if (device >= 0 && status == STATUS_OK)
        status = job_device_use(job, table, device, stream, &reason);
    return status_public(status, &reason, error);
}

// ---- tensors ------------------------------------------------------------------------------------

static bool tensor_at(const struct cpattn_check_job *job, int index, struct job_tensor *tensor)
{
    return job->spec.kind->tensor(job->spec.bytes, job->rank, index, tensor);
}

bool cpattn_check_job_tensor(const struct cpattn_check_job *job, int index,
                             struct cpattn_check_tensor *tensor)
{
    static const char *const dtypes[JOB_DTYPES] = {
        [JOB_BF16] = "bf16",   [JOB_FP16] = "fp16",   [JOB_FP32] = "fp32",
        [JOB_INT32] = "int32", [JOB_INT64] = "int64", [JOB_UINT8] = "uint8"};
    struct job_tensor found;
    for (int i = 0, seen = 0; i < job->spec.kind->tensor_count; i++) {
        if (!tensor_at(job, i, &found) || seen++ != index)
            continue;
        *tensor = (struct cpattn_check_tensor){.name = found.name,
                                               .dtype = dtypes[found.dtype],
                                               .is_result = found.is_result,
                                               .dims = found.dims,
                                               .bytes = (size_t)job_tensor_bytes(&found)};
        for (int dim = 0; dim < 2; dim++)
            tensor->shape[dim] = dim < found.dims ? found.shape[dim] : 1;
        return true;
    }
    return false;
}

static enum status tensor_find(const struct cpattn_check_job *job, const char *name,
                               const void *data, size_t bytes, int *index,
                               struct job_tensor *tensor, struct error *error)
{
    const struct job_kind *kind = job->spec.kind;
    *index = job_tensor_find(kind, job->spec.bytes, job->rank, name, tensor);
    if (*index < 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "this job '%s' has no tensor '%.40s'; cpattn_check_job_tensor() lists "
                         "those that it has",
                         kind->name, name);
    if (bytes != (size_t)job_tensor_bytes(tensor))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s has %zu bytes; accepted is %lld on rank %d", name, bytes,
                         (long long)job_tensor_bytes(tensor), job->rank);
    if (bytes > 0 && (!data || (uintptr_t)data % (uintptr_t)job_dtype_bytes(tensor->dtype) != 0))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the memory of %s is %s; accepted is memory aligned to %d bytes", name,
                         data ? "not aligned" : "NULL", job_dtype_bytes(tensor->dtype));
    return STATUS_OK;
}

enum cpattn_status cpattn_check_job_fill(const struct cpattn_check_job *job, const char *tensor,
                                         void *data, size_t bytes, struct cpattn_error *error)
{
    struct error reason = {0};
    struct job_tensor found;
    struct job_place place;
    int index;
    enum status status = tensor_find(job, tensor, data, bytes, &index, &found, &reason);
    if (status != STATUS_OK || bytes == 0)
        return status_public(status, &reason, error);
    job_place_begin(&place, job->device, job->device_judge);
    if (found.is_result)
        status = place.work.collective->set(place.work.queue, data, job->judge->untouched, bytes,
                                            &reason);
    else
        status = job->judge->fill(&place, job->spec.bytes, job->rank, index, data, &reason);
    return status_public(job_place_end(&place, status, &reason), &reason, error);
}

// ---- the verdict --------------------------------------------------------------------------------

// The caller's buffers, by index of the tensor.
struct taken {
    const void *tensors[JOB_TENSORS_MAX]; // NULL: no buffer, or empty on this rank
    bool named[JOB_TENSORS_MAX];          // the caller passed a buffer
    struct figures figures[JOB_TENSORS_MAX];
};

static enum status buffers_take(const struct cpattn_check_job *job,
                                const struct cpattn_check_buffer *buffers, int count,
                                struct taken *taken, struct error *error)
{
    enum status status = STATUS_OK;
    if (count < 1)
        return error_set(error, STATUS_INVALID_ARGUMENT, "there is no tensor to judge");
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        const struct cpattn_check_buffer *b = &buffers[i];
        struct job_tensor tensor;
        int index;
        status = tensor_find(job, b->tensor, b->data, b->bytes, &index, &tensor, error);
        if (status != STATUS_OK)
            break;
        if (taken->named[index])
            return error_set(error, STATUS_INVALID_ARGUMENT, "%s is given twice; accepted is once",
                             tensor.name);
        taken->named[index] = true;
        taken->tensors[index] = b->bytes > 0 ? b->data : NULL;
        taken->figures[index] =
            (struct figures){.first_bad = {.position = -1}, .worst_row = {.position = -1}};
        snprintf(taken->figures[index].name, TENSOR_NAME_MAX, "%s", tensor.name);
    }
    return status;
}

static enum status verdict_fill(const struct cpattn_check_job *job, struct job_place *place,
                                const struct taken *taken, struct cpattn_check_verdict *v,
                                struct error *error)
{
    struct job_tensor tensor;
    uint64_t digest;
    enum status status = STATUS_OK;
    v->same = DIGEST_START;
    for (int i = 0; i < job->spec.kind->tensor_count && status == STATUS_OK; i++) {
        if (!taken->named[i] || !tensor_at(job, i, &tensor))
            continue;
        verdict_append(v, &taken->figures[i]);
        if (!tensor.is_result || !job->judge->same || !job->judge->same(job->spec.bytes, i))
            continue;
        status = job_place_digest(place, taken->tensors[i], (size_t)job_tensor_bytes(&tensor),
                                  &digest, error);
        v->same = digest_add(v->same, &digest, sizeof(digest));
    }
    verdict_write(v);
    return status;
}

static enum status verdict_make(const struct cpattn_check_job *job, struct taken *taken,
                                struct cpattn_check_verdict *v, struct error *error)
{
    struct job_place place;
    v->report = (struct rank_report){.rank = job->rank, .pass = true};
    job_place_begin(&place, job->device, job->device_judge);
    enum status status = job->judge->judge(&place, job->spec.bytes, job->rank, taken->tensors,
                                           taken->figures, &v->report.diagnosis, error);
    if (status == STATUS_OK)
        status = verdict_fill(job, &place, taken, v, error);
    return job_place_end(&place, status, error);
}

enum cpattn_status cpattn_check_job_verify(const struct cpattn_check_job *job,
                                           const struct cpattn_check_buffer *buffers, int count,
                                           struct cpattn_check_verdict **verdict,
                                           struct cpattn_error *error)
{
    struct error reason = {0};
    struct taken taken = {0};
    struct cpattn_check_verdict *v = calloc(1, sizeof(*v));
    enum status status =
        v ? buffers_take(job, buffers, count, &taken, &reason)
          : error_set(&reason, STATUS_RESOURCE_EXHAUSTED, "no memory for a verdict");
    if (status == STATUS_OK)
        status = verdict_make(job, &taken, v, &reason);
    if (status == STATUS_OK)
        *verdict = v;
    else
        free(v);
    return status_public(status, &reason, error);
}
