// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: its function table, its lifetime, the memory for the tables of plans, and the
// entry points of its attention kernels.
#include "kernels/cuda/backend.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/internal.h"
#include "kernels/cuda/linear_cuda.h"
#include "kernels/cuda/packed_cuda.h"
#include "kernels/cuda/reduce_cuda.h"

// ---- memory for the tables of a plan ----

// Table memory up to this many bytes stays allocated for the next plan.
#define TABLES_KEPT ((size_t)4 << 20)

static void tables_free(struct attention_backend *backend)
{
    struct memory_block *t = &backend->tables;
    cudaFreeHost(t->host);
    cudaFree(t->device);
    cudaGetLastError(); // drops the error of a failed device; the next wait for it reports it again
    *t = (struct memory_block){0};
}

static enum status tables_reserve(struct attention_backend *backend, size_t bytes, void **host,
                                  void **device, struct error *error)
{
    struct memory_block *t = &backend->tables;
    if (bytes > t->bytes) {
        tables_free(backend);
        size_t least = bytes > TABLES_KEPT / 4 ? bytes : TABLES_KEPT / 4;
        cudaError_t result = cudaMalloc((void **)&t->device, least);
        if (result == cudaSuccess)
            result = cudaMallocHost((void **)&t->host, least);
        if (!cuda_note(backend, result, "the tables of a plan")) {
            tables_free(backend);
            return cuda_report(backend, error);
        }
        t->bytes = least;
    }
    *host = t->host;
    *device = t->device;
    return STATUS_OK;
}

static void tables_push(struct attention_backend *backend, size_t bytes)
{
    staging_push(backend, backend->tables.device, backend->tables.host, bytes);
}

static void tables_release(struct attention_backend *backend)
{
    if (backend->tables.bytes > TABLES_KEPT)
        tables_free(backend);
}

// ---- create and destroy ----

static enum status no_code(const struct attention_backend *backend, struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE,
                     "device %d is sm_%d, which this build has no code for: configure it with "
                     "--with-cuda-arch=%d",
                     backend->queue.device, backend->capability, backend->capability);
}

static cudaError_t capability_read(struct attention_backend *b)
{
    int major = 0, minor = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, b->queue.device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, b->queue.device);
    b->capability = 10 * major + minor;
    return error;
}

static enum status backend_init(struct attention_backend *b, struct error *error)
{
    cudaError_t found = queue_init(&b->queue);
    if (found == cudaSuccess)
        found = capability_read(b);
    if (found == cudaSuccess)
        found = elementwise_cuda_check();
    if (found == cudaErrorNoKernelImageForDevice || found == cudaErrorInvalidDeviceFunction)
        return no_code(b, error);
    if (found == cudaSuccess)
        return STATUS_OK;
    cudaGetLastError();
    if (found == cudaErrorMemoryAllocation)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "device %d: no memory left for the CUDA backend", b->queue.device);
    return error_set(error, STATUS_UNAVAILABLE, "no CUDA device can be used: %s (%s)",
                     cudaGetErrorString(found), cudaGetErrorName(found));
}

static void backend_destroy(struct attention_backend *backend)
{
    if (!backend)
        return;
    queue_fini(&backend->queue); // waits for work that uses the tables
    cublaslt_release();
    tables_free(backend);
    free(backend);
}

static enum status backend_create(struct attention_backend **backend, struct error *error)
{
    struct attention_backend *b = calloc(1, sizeof(*b));
    if (!b)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the CUDA backend");
    enum status status = backend_init(b, error);
    if (status != STATUS_OK) {
        backend_destroy(b);
        return status;
    }
    *backend = b;
    return STATUS_OK;
}

cudaStream_t attention_cuda_stream(struct attention_backend *backend)
{
    return backend->queue.stream;
}

struct cuda_queue *attention_cuda_queue(struct attention_backend *backend)
{
    return &backend->queue;
}

enum status attention_cuda_finish(struct attention_backend *backend, struct error *error)
{
    return queue_finish(&backend->queue, error);
}

// ---- preparation ----

static enum status work_prepare(struct attention_backend *backend, const struct attention_op *op,
                                struct attention_work **work, struct op_needs *needs,
                                struct error *error)
{
    return op->backward ? backward_prepare_cuda(backend, op, work, needs, error)
                        : forward_prepare_cuda(backend, op, work, needs, error);
}

static void work_place(struct attention_backend *backend, struct attention_work *work, void *host,
                       const void *device, void *zeros)
{
    (void)backend;
    if (work->backward)
        backward_place_cuda(work, host, device);
    else
        forward_place_cuda(work, host, device, zeros);
}

static void work_discard(struct attention_backend *backend, struct attention_work *work)
{
    (void)backend;
    if (work && work->backward)
        backward_discard_cuda(work);
    else if (work)
        forward_discard_cuda(work);
}

// ---- attention that is prepared and launched in one call ----

// Takes table, zeros and scratch of a prepared work from the queue. Enqueues the copy of table and
// zeros to the device. Sets *scratch; NULL: none is needed. False, with a stored error: memory is
// short.
static bool work_equip(struct attention_backend *backend, struct attention_work *work,
                       const struct op_needs *needs, void **scratch)
{
    size_t table = scratch_bytes(needs->table_bytes);
    void *device;
    *scratch = needs->scratch_bytes > 0 ? scratch_take(backend, needs->scratch_bytes) : NULL;
    if (needs->scratch_bytes > 0 && !*scratch)
        return false;
    if (table + needs->zero_bytes == 0)
        return true;
    char *host = staging_take(backend, table + needs->zero_bytes, &device);
    if (!host)
        return false;
    work_place(backend, work, host, device, (char *)device + table);
    memset(host + table, 0, needs->zero_bytes);
    staging_push(backend, device, host, table + needs->zero_bytes);
    return true;
}

static enum status work_make(struct attention_backend *backend, const struct attention_op *op,
                             struct attention_work **work, void **scratch, struct error *error)
{
    struct op_needs needs = {0};
    enum status status = cuda_report(backend, error);
    if (status == STATUS_OK)
        status = work_prepare(backend, op, work, &needs, error);
    if (status != STATUS_OK || work_equip(backend, *work, &needs, scratch))
        return status;
    work_discard(backend, *work);
    return cuda_report(backend, error);
}

static bool are_aligned(const void *const *tensors, int count)
{
    uintptr_t all = 0;
    for (int i = 0; i < count; i++)
        all |= (uintptr_t)tensors[i];
    return all % 16 == 0;
}

static enum status backend_forward(struct attention_backend *backend,
                                   const struct attention_forward *args, struct error *error)
{
    const void *tensors[] = {args->q, args->k, args->v, args->o};
    const struct attention_op op = {.shape = args->shape,
                                    .bias = args->bias,
                                    .max_logit = args->max_logit,
                                    .aligned = are_aligned(tensors, 4),
                                    .slices = args->slices,
                                    .slice_count = args->slice_count};
    struct attention_work *work;
    void *scratch;
    enum status status = work_make(backend, &op, &work, &scratch, error);
    if (status != STATUS_OK)
        return status;
    status = forward_launch_cuda(backend, work, args, error);
    work_discard(backend, work);
    return status;
}

static enum status backend_backward(struct attention_backend *backend,
                                    const struct attention_backward *args, struct error *error)
{
    const void *tensors[] = {args->q, args->k, args->v, args->d_out, args->dq, args->dk, args->dv};
    const struct attention_op op = {.shape = args->shape,
                                    .backward = true,
                                    .bias = args->bias,
                                    .dbias = args->dbias,
                                    .aligned = are_aligned(tensors, 7),
                                    .slices = args->slices,
                                    .slice_count = args->slice_count};
    struct attention_work *work;
    void *scratch;
    enum status status = work_make(backend, &op, &work, &scratch, error);
    if (status != STATUS_OK)
        return status;
    status = backward_launch_cuda(backend, work, args, scratch, error);
    work_discard(backend, work);
    return status;
}

// ---- launches of prepared attention, and the function table ----

static enum status launch_forward(struct attention_backend *backend,
                                  const struct attention_work *work,
                                  const struct attention_forward *args, void *scratch,
                                  struct error *error)
{
    (void)scratch;
    enum status status = cuda_report(backend, error);
    return status == STATUS_OK ? forward_launch_cuda(backend, work, args, error) : status;
}

static enum status launch_backward(struct attention_backend *backend,
                                   const struct attention_work *work,
                                   const struct attention_backward *args, void *scratch,
                                   struct error *error)
{
    enum status status = cuda_report(backend, error);
    return status == STATUS_OK ? backward_launch_cuda(backend, work, args, scratch, error) : status;
}

static void *backend_stream(struct attention_backend *backend)
{
    return backend->queue.stream;
}

static const struct attention_kernels kernels = {.forward = backend_forward,
                                                 .backward = backend_backward,
                                                 .prepare = work_prepare,
                                                 .place = work_place,
                                                 .launch_forward = launch_forward,
                                                 .launch_backward = launch_backward,
                                                 .discard = work_discard};

const struct backend_ops backend_cuda = {
    .name = "cuda",
    .on_device = true,
    .attention = &kernels,
    .create = backend_create,
    .destroy = backend_destroy,
    .row_dot = row_dot_cuda,
    .add = add_cuda,
    .max = max_cuda,
    .fill_heads = fill_heads_cuda,
    .sink_grad = sink_grad_cuda,
    .sink_grad_scratch = sink_grad_scratch_cuda,
    .convert = convert_cuda,
    .convert_sum = convert_sum_cuda,
    .fill = fill_cuda,
    .merge_rows = merge_rows_cuda,
    .pack_rows = pack_rows_cuda,
    .add_rows = add_rows_cuda,
    .pack_heads = pack_heads_cuda,
    .tables_reserve = tables_reserve,
    .tables_push = tables_push,
    .tables_release = tables_release,
    .reduce = reduce_cuda,
    .divide = divide_cuda,
    .gemm = cuda_gemm_providers,
    .activate = activate_cuda,
    .activate_backward = activate_backward_cuda,
    .column_sum = column_sum_cuda,
    .sum_parts = sum_parts_cuda,
    .stream = backend_stream,
};
