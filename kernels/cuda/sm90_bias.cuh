// SPDX-License-Identifier: Apache-2.0
// On sm_90a: asynchronous copies of a bias into shared memory.
#ifndef CPATTN_KERNELS_CUDA_SM90_BIAS_CUH
#define CPATTN_KERNELS_CUDA_SM90_BIAS_CUH

#include "kernels/cuda/sm90.cuh"

// Loads eight elements into the chunk at shared address `to`. Only elements in [begin, end) exist:
// the others are not read and become 0. Copies (cp.async) or stores; the caller waits for both.
template <typename T>
__device__ __forceinline__ void bias_chunk_load(uint32_t to, const T *from, int begin, int end)
{
    uintptr_t address = (uintptr_t)from;
    if (begin <= 0 && address % CHUNK_BYTES == 0) {
        // Bytes past the copied ones are zero-filled, and not read.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                     "r"(2 * max(0, min(end, CHUNK_ELEMENTS)))
                     : "memory");
        return;
    }
    if (begin <= 0 && end >= CHUNK_ELEMENTS && address % 4 == 0) {
#pragma unroll
        for (int i = 0; i < CHUNK_BYTES; i += 4)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + i),
                         "l"((const char *)from + i)
                         : "memory");
        return;
    }
#pragma unroll
    for (int i = 0; i < CHUNK_ELEMENTS; i++) {
        const unsigned short *element = (const unsigned short *)from + i;
        unsigned short x = i >= begin && i < end ? *element : 0;
        asm volatile("st.shared.b16 [%0], %1;" ::"r"(to + i * 2), "h"(x) : "memory");
    }
}

#endif
