// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/stamps.h"

#include "kernels/cuda/stamp_cuda.h"

void stamps_init(struct stamps *s)
{
    *s = (struct stamps){.capacity = 0};
}

void stamps_fini(struct stamps *s)
{
    if (s->host)
        (void)cudaFreeHost(s->host);
    stamps_init(s);
}

cudaError_t stamps_reset(struct stamps *s, int capacity)
{
    void *host, *device;
    s->count = 0;
    if (capacity <= s->capacity)
        return cudaSuccess;
    stamps_fini(s);
    cudaError_t result =
        cudaHostAlloc(&host, (size_t)capacity * sizeof(*s->host), cudaHostAllocMapped);
    if (result != cudaSuccess)
        return result;
    s->host = host;
    result = cudaHostGetDevicePointer(&device, host, 0);
    if (result != cudaSuccess) {
        stamps_fini(s);
        return result;
    }
    s->device = device;
    s->capacity = capacity;
    return cudaSuccess;
}

uint64_t *stamps_take(struct stamps *s, int *index)
{
    if (s->count == s->capacity)
        return NULL;
    *index = s->count++;
    return s->device + *index;
}

cudaError_t stamps_put(struct stamps *s, cudaStream_t stream, int *index)
{
    uint64_t *place = stamps_take(s, index);
    return place ? stamp_cuda(stream, place, NULL, 0) : cudaErrorMemoryAllocation;
}

uint64_t stamps_between_ns(const struct stamps *s, int from, int to)
{
    return s->host[to] > s->host[from] ? s->host[to] - s->host[from] : 0;
}
