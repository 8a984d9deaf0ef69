// SPDX-License-Identifier: Apache-2.0
// Finding one's place in a list of runs.
#ifndef CPATTN_COMMON_CUDA_RUNS_CUH
#define CPATTN_COMMON_CUDA_RUNS_CUH

#include <stdint.h>

// The run that item number `item` belongs to, where run->before is how many there are in the runs
// in front of it, none of which is empty.
template <class Run>
__host__ __device__ inline const Run *run_find(const Run *runs, int count, int64_t item)
{
    int low = 0, high = count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (runs[middle].before <= item)
            low = middle;
        else
            high = middle;
    }
    return &runs[low];
}

// Quotient and remainder of numbers that are not negative. Most are short, and a division of 64
// bits is several times as dear.
static __device__ __forceinline__ int64_t divide(int64_t x, int64_t by, int64_t *rest)
{
    int64_t quotient = (x | by) >> 32 ? x / by : (int64_t)((uint32_t)x / (uint32_t)by);
    *rest = x - quotient * by;
    return quotient;
}

#endif
