// SPDX-License-Identifier: Apache-2.0
// A simulation of processors that take thread blocks one after the other, each when it is free.
#ifndef CPATTN_KERNELS_CUDA_CLOCKS_H
#define CPATTN_KERNELS_CUDA_CLOCKS_H

#include <stdint.h>

// When each processor is free, as a min-heap: when[0] is the earliest. All zeros are a valid heap.
struct clocks {
    int64_t *when;
    int32_t count;
};

// Gives the next thread block, which takes `time`, to the processor that is free first.
static inline void clocks_put(struct clocks *clocks, int64_t time)
{
    int64_t when = clocks->when[0] + time;
    int32_t at = 0;
    for (int32_t child = 1; child < clocks->count; child = 2 * at + 1) {
        child += child + 1 < clocks->count && clocks->when[child + 1] < clocks->when[child];
        if (clocks->when[child] >= when)
            break;
        clocks->when[at] = clocks->when[child];
        at = child;
    }
    clocks->when[at] = when;
}

// When the last processor is free.
static inline int64_t clocks_end(const struct clocks *clocks)
{
    int64_t end = 0;
    for (int32_t i = 0; i < clocks->count; i++)
        end = clocks->when[i] > end ? clocks->when[i] : end;
    return end;
}

#endif
