// SPDX-License-Identifier: Apache-2.0
// Binary search in a list of runs, and fast division.
#ifndef CPATTN_COMMON_CUDA_RUNS_CUH
#define CPATTN_COMMON_CUDA_RUNS_CUH

#include <stdint.h>

// Returns the run that contains item number `item`. run->before is the number of items in all
// earlier runs. No run is empty.
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

// Quotient and remainder of non-negative numbers. Most fit in 32 bits, and a 64-bit division costs
// several times as much as a 32-bit one.
static __device__ __forceinline__ int64_t divide(int64_t x, int64_t by, int64_t *rest)
{
    int64_t quotient = (x | by) >> 32 ? x / by : (int64_t)((uint32_t)x / (uint32_t)by);
    *rest = x - quotient * by;
    return quotient;
}

#endif
