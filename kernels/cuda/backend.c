// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's table, its stream and its errors.
#include <stdlib.h>

#include "kernels/cuda/internal.h"

// ---- errors ----

bool cuda_note(struct attention_backend *backend, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    cudaGetLastError(); // what has been noted shall not be noted again for the next launch
    if (backend->error == cudaSuccess) {
        backend->error = error;
        backend->failed = what;
    }
    return false;
}

bool cuda_launched(struct attention_backend *backend, const char *what)
{
    return cuda_note(backend, cudaGetLastError(), what);
}

// Errors that a kernel makes while it runs. They are seen by whatever call comes next, and by all
// calls after that.
static bool made_by_kernel(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
        return true;
    default:
        return false;
    }
}

enum status cuda_report(struct attention_backend *backend, struct error *error)
{
    cudaError_t found = backend->error;
    backend->error = cudaSuccess;
    if (found == cudaSuccess)
        return STATUS_OK;
    if (found == cudaErrorMemoryAllocation)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "device %d: no memory left for %s",
                         backend->device, backend->failed);
    return error_set(error, STATUS_INTERNAL, "device %d: %s%s failed: %s (%s)", backend->device,
                     made_by_kernel(found) ? "a kernel before " : "", backend->failed,
                     cudaGetErrorString(found), cudaGetErrorName(found));
}

// ---- life ----

static enum status no_code(const struct attention_backend *backend, struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE,
                     "device %d is sm_%d, which this build has no code for: configure it with "
                     "--with-cuda-arch=%d",
                     backend->device, backend->capability, backend->capability);
}

static cudaError_t capability_read(struct attention_backend *b)
{
    int major = 0, minor = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, b->device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, b->device);
    b->capability = 10 * major + minor;
    return error;
}

static enum status backend_init(struct attention_backend *b, struct error *error)
{
    cudaError_t found = cudaGetDevice(&b->device);
    if (found == cudaSuccess)
        found = capability_read(b);
    if (found == cudaSuccess)
        found = cudaDeviceGetAttribute(&b->sm_count, cudaDevAttrMultiProcessorCount, b->device);
    if (found == cudaSuccess)
        found = cudaDeviceGetAttribute(&b->shared_bytes_max,
                                       cudaDevAttrMaxSharedMemoryPerBlockOptin, b->device);
    if (found == cudaSuccess)
        found = elementwise_cuda_check();
    if (found == cudaErrorNoKernelImageForDevice || found == cudaErrorInvalidDeviceFunction)
        return no_code(b, error);
    if (found == cudaSuccess)
        found = cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking);
    if (found == cudaSuccess)
        return STATUS_OK;
    cudaGetLastError();
    if (found == cudaErrorMemoryAllocation)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "device %d: no memory left for the CUDA backend", b->device);
    return error_set(error, STATUS_UNAVAILABLE, "no CUDA device can be used: %s (%s)",
                     cudaGetErrorString(found), cudaGetErrorName(found));
}

static void backend_destroy(struct attention_backend *backend)
{
    if (!backend)
        return;
    if (backend->stream) {
        cudaStreamSynchronize(backend->stream);
        cudaStreamDestroy(backend->stream);
    }
    memory_pool_fini(&backend->staging);
    memory_pool_fini(&backend->scratch);
    cudaGetLastError();
    free(backend);
}

static enum status backend_create(struct attention_backend **backend, struct error *error)
{
    struct attention_backend *b = calloc(1, sizeof(*b));
    if (!b)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the CUDA backend");
    b->staging.pinned = true;
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
    return backend->stream;
}

enum status attention_cuda_finish(struct attention_backend *backend, struct error *error)
{
    cuda_note(backend, cudaStreamSynchronize(backend->stream), "the end of the work");
    backend->staging.stale = backend->scratch.stale = true;
    return cuda_report(backend, error);
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

const struct attention_ops attention_cuda = {
    .name = "cuda",
    .create = backend_create,
    .destroy = backend_destroy,
    .forward = backend_forward,
    .backward = backend_backward,
    .row_dot = row_dot_cuda,
    .add = add_cuda,
    .max = max_cuda,
    .fill_heads = fill_heads_cuda,
    .sink_grad = sink_grad_cuda,
    .convert = convert_cuda,
    .fill = fill_cuda,
};
