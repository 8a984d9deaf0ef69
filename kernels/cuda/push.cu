// SPDX-License-Identifier: Apache-2.0
// Short lists to the device. A kernel that carries one in its parameters begins sooner behind the
// one before it than a copy does, and so does the kernel behind.
#include <string.h>

#include "kernels/cuda/internal.h"

#define THREADS     256
#define SHORT_BYTES 3072
#if CUDART_VERSION >= 12010
#define LONG_BYTES 16384
#else
#define LONG_BYTES SHORT_BYTES
#endif

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

// Whether parameters may be longer than 4 KiB.
static bool parcels_are_long(void)
{
    int version = 0;
    return CUDART_VERSION >= 12010 && cudaDriverGetVersion(&version) == cudaSuccess &&
           version >= 12010;
}

void list_push_cuda(struct attention_backend *backend, void *device, const void *host, size_t bytes)
{
    if (bytes <= SHORT_BYTES)
        parcel_send<SHORT_BYTES>(backend, device, host, bytes);
    else if (bytes <= LONG_BYTES && parcels_are_long())
        parcel_send<LONG_BYTES>(backend, device, host, bytes);
    else
        staging_push(backend, device, host, bytes);
}
