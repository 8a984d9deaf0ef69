// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/marks.h"

#include <string.h>

#include "kernels/cuda/stamp_cuda.h"

// Marks of different streams are in different cache lines.
#define MARK_STRIDE 32
#define MARKS_BYTES (PLAN_STREAMS * MARK_STRIDE * sizeof(uint32_t))

enum status marks_init(struct marks *m, struct error *error)
{
    *m = (struct marks){0};
    void *device;
    m->run = stream_words_find();
    if (!m->run)
        return STATUS_OK;
    cudaError_t result = cudaHostAlloc((void **)&m->host, MARKS_BYTES, cudaHostAllocMapped);
    if (result == cudaSuccess)
        result = cudaHostGetDevicePointer(&device, m->host, 0);
    if (result != cudaSuccess) {
        marks_fini(m);
        return error_set(error, STATUS_INTERNAL, "memory for marks: %s",
                         cudaGetErrorString(result));
    }
    m->device = (CUdeviceptr)(uintptr_t)device;
    marks_reset(m);
    return STATUS_OK;
}

void marks_fini(struct marks *m)
{
    if (m->host)
        (void)cudaFreeHost(m->host);
    *m = (struct marks){0};
}

void marks_reset(struct marks *m)
{
    if (m->host)
        memset(m->host, 0, MARKS_BYTES);
}

uint64_t marks_place(const struct marks *m, enum plan_stream which)
{
    return m->host ? m->device + (uint64_t)which * MARK_STRIDE * sizeof(uint32_t) : 0;
}

void marks_put(const struct marks *m, enum plan_stream which, cudaStream_t stream, uint32_t value,
               bool by_kernel)
{
    uint64_t place = marks_place(m, which);
    struct stream_words mark = stream_words_none();
    // Without marks only the report of a hang is less precise.
    if (!place)
        return;
    if (by_kernel) {
        (void)stamp_cuda(stream, NULL, (uint32_t *)(uintptr_t)place, value);
        return;
    }
    stream_words_write(&mark, (CUdeviceptr)place, value);
    (void)stream_words_put(m->run, &mark, stream);
}

uint32_t marks_get(const struct marks *m, enum plan_stream which)
{
    return m->host ? __atomic_load_n(&m->host[which * MARK_STRIDE], __ATOMIC_RELAXED) : 0;
}
