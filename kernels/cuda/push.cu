// SPDX-License-Identifier: Apache-2.0
// Short lists to the device. A kernel that carries one in its parameters begins sooner behind the
// one before it than a copy does, and so does the kernel behind.
#include <string.h>

#include "kernels/cuda/internal.h"

#define THREADS 256

template <int BYTES> struct parcel {
    uint4 words[BYTES / 16];
};

template <int BYTES>
static __global__ void parcel_unpack(const __grid_constant__ struct parcel<BYTES> parcel, uint4 *to,
                                     int words)
{
    int i = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (i < words)
        to[i] = parcel.words[i];
}

template <int BYTES>
static void parcel_send(struct attention_backend *backend, void *device, const void *host,
                        size_t bytes)
{
    struct parcel<BYTES> parcel;
    int words = (int)((bytes + 15) / 16);
    memcpy(&parcel, host, bytes);
    parcel_unpack<BYTES>
        <<<(unsigned)((words + THREADS - 1) / THREADS), THREADS, 0, backend->queue.stream>>>(
            parcel, (uint4 *)device, words);
    cuda_launched(backend, "a short list");
}

void list_push_cuda(struct attention_backend *backend, void *device, const void *host, size_t bytes)
{
    if (bytes <= 3072)
        parcel_send<3072>(backend, device, host, bytes);
#if CUDART_VERSION >= 12010 // parameters may be longer than 4 KiB
    else if (bytes <= 16384)
        parcel_send<16384>(backend, device, host, bytes);
#endif
    else
        staging_push(backend, device, host, bytes);
}
