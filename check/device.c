// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "check/device.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/dtype.h"

#define CUDA_PART "libcpattn-check-cuda.so"

// ---- loading ------------------------------------------------------------------------------------

static struct {
    pthread_once_t once;
    const struct check_device *table;
    char reason[ERROR_TEXT_MAX];
} part = {.once = PTHREAD_ONCE_INIT};

// Loads the CUDA part from the folder of this library, or else by the system's search path.
static void *part_open(void)
{
    Dl_info own;
    char path[4096];
    void *handle = NULL;
    if (dladdr(&part, &own) && own.dli_fname && strrchr(own.dli_fname, '/')) {
        int folder = (int)(strrchr(own.dli_fname, '/') - own.dli_fname);
        int length = snprintf(path, sizeof(path), "%.*s/" CUDA_PART, folder, own.dli_fname);
        if (length < (int)sizeof(path))
            handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle ? handle : dlopen(CUDA_PART, RTLD_NOW | RTLD_LOCAL);
}

static void part_load(void)
{
    check_cuda_table *table;
    void *handle = part_open();
    if (!handle) {
        snprintf(part.reason, sizeof(part.reason), "%s", dlerror());
        return;
    }
    *(void **)&table = dlsym(handle, CHECK_CUDA_TABLE);
    const struct check_device *found = table ? table() : NULL;
    if (found && strcmp(found->version, PACKAGE_VERSION) == 0 &&
        found->state_bytes == sizeof(struct cpattn_check))
        part.table = found;
    else
        snprintf(part.reason, sizeof(part.reason), CUDA_PART " is of another version than %s",
                 PACKAGE_VERSION);
}

enum status device_part(const struct check_device **table, struct error *error)
{
    pthread_once(&part.once, part_load);
    if (!part.table)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "memory of a GPU cannot be judged without " CUDA_PART ": %s", part.reason);
    *table = part.table;
    return STATUS_OK;
}

void device_close(struct cpattn_check *check)
{
    if (check->device)
        check->device->close(check->device_judge);
    check->device = NULL;
    check->device_judge = NULL;
}

enum status device_use(struct cpattn_check *check, const struct check_device *table, int device,
                       void *stream, struct error *error)
{
    device_close(check);
    enum status status = table->open(device, stream, &check->device_judge, error);
    if (status == STATUS_OK)
        check->device = table;
    return status;
}

static enum status device_open(struct cpattn_check *check, int device, void *stream,
                               struct error *error)
{
    const struct check_device *table = NULL;
    if (device < 0) {
        device_close(check);
        return STATUS_OK;
    }
    enum status status = device_part(&table, error);
    return status == STATUS_OK ? device_use(check, table, device, stream, error) : status;
}

enum cpattn_status cpattn_check_device(struct cpattn_check *check, int device, void *stream,
                                       struct cpattn_error *error)
{
    struct error reason = {0};
    return status_public(device_open(check, device, stream, &reason), &reason, error);
}

// ---- calls of the CUDA part ---------------------------------------------------------------------

static struct device_array array_of(const struct cpattn_check *check, enum cpattn_tensor tensor,
                                    const struct cpattn_array *array, struct cpattn_shape shape)
{
    return (struct device_array){array, shape, tensor_element_bytes(&check->c, tensor)};
}

enum status device_get(const struct cpattn_check *check, enum cpattn_tensor tensor,
                       const struct cpattn_array *array, struct cpattn_shape shape, void *host,
                       struct error *error)
{
    struct device_array a = array_of(check, tensor, array, shape);
    return check->device->get(check->device_judge, &a, host, error);
}

enum status device_mirror(const struct cpattn_check *check, enum cpattn_tensor tensor,
                          struct cpattn_array *host, struct error *error)
{
    struct cpattn_shape s = cpattn_check_shape(check, tensor);
    size_t elements = (size_t)s.rows * (size_t)s.heads * (size_t)s.dim;
    *host = (struct cpattn_array){
        .data = malloc(elements * tensor_element_bytes(&check->c, tensor) + 1),
        .row_stride = (int64_t)s.heads * s.dim,
        .head_stride = s.dim};
    return host->data ? STATUS_OK
                      : error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %s on the host",
                                  cpattn_tensor_name(tensor));
}

enum status device_put(const struct cpattn_check *check, enum cpattn_tensor tensor,
                       const struct cpattn_array *array, const struct cpattn_array *host,
                       struct error *error)
{
    struct device_array a = array_of(check, tensor, array, cpattn_check_shape(check, tensor));
    return check->device->put(check->device_judge, &a, host->data, error);
}

enum status device_fill(const struct cpattn_check *check, enum cpattn_tensor tensor,
                        const struct cpattn_array *array, struct error *error)
{
    return check->device->fill(check->device_judge, check, tensor, array, error);
}

enum status device_verify(struct cpattn_check *check, const struct cpattn_array *results,
                          struct cpattn_check_verdict *v, struct error *error)
{
    bool sums = results[CPATTN_TENSOR_DSINK].data || results[CPATTN_TENSOR_MAX_LOGIT].data;
    if (check->placed && results[CPATTN_TENSOR_DBIAS].data)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "dbias of named tokens is judged in host memory only");
    if (check->placed && sums && check->sums == CPATTN_SUMS_OWN)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "dsink and max_logit over named tokens are judged in host memory only");
    struct rank_report report = {.rank = check->rank, .pass = true};
    enum status status = check->device->verify(check->device_judge, check, results,
                                               verdict_diagnose, &report, error);
    for (int i = 0; i < report.figures_count && status == STATUS_OK; i++)
        verdict_append(v, &report.figures[i]);
    v->report.diagnosis = report.diagnosis;
    return status;
}

void device_read(const struct cpattn_check *check, enum cpattn_tensor tensor, const void *at,
                 float *values)
{
    struct cpattn_shape shape = cpattn_check_shape(check, tensor);
    size_t bytes = (size_t)shape.dim * tensor_element_bytes(&check->c, tensor);
    void *copy = malloc(bytes + 1);
    for (int i = 0; i < shape.dim; i++)
        values[i] = NAN;
    if (copy && check->device->read(check->device_judge, copy, at, bytes))
        dtype_read(tensor_dtype(&check->c, tensor), copy, 0, shape.dim, values);
    free(copy);
}
