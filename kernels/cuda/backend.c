// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's table and its life.
#include <stdlib.h>

#include "kernels/backend.h"
#include "kernels/cuda/internal.h"
#include "kernels/cuda/packed_cuda.h"

// ---- life ----

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
    queue_fini(&backend->queue);
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

// ---- the table ----

static enum status backend_forward(struct attention_backend *backend,
                                   const struct attention_forward *args, struct error *error)
{
    enum status status = cuda_report(backend, error);
    return status == STATUS_OK ? forward_cuda(backend, args, error) : status;
}

static enum status backend_backward(struct attention_backend *backend,
                                    const struct attention_backward *args, struct error *error)
{
    enum status status = cuda_report(backend, error);
    return status == STATUS_OK ? backward_cuda(backend, args, error) : status;
}

static void backend_lend(struct attention_backend *backend, void *scratch, size_t bytes)
{
    backend->lent = scratch;
    backend->lent_bytes = bytes;
}

static void *backend_stream(struct attention_backend *backend)
{
    return backend->queue.stream;
}

static const struct attention_kernels kernels = {.forward = backend_forward,
                                                 .backward = backend_backward,
                                                 .backward_scratch = backward_scratch_cuda,
                                                 .lend = backend_lend};

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
    .convert = convert_cuda,
    .fill = fill_cuda,
    .merge_rows = merge_rows_cuda,
    .pack_rows = pack_rows_cuda,
    .add_rows = add_rows_cuda,
    .pack_heads = pack_heads_cuda,
    .stream = backend_stream,
};
