// SPDX-License-Identifier: Apache-2.0
// A simulation of processors that take thread blocks one after the other.
#ifndef CPATTN_KERNELS_CUDA_CLOCKS_H
#define CPATTN_KERNELS_CUDA_CLOCKS_H

#include <stdint.h>

// When each processor is done, as a heap: the first of them in front. All 0 is one.
struct clocks {
    int64_t *when;
    int32_t count;
};

// The next thread block goes to who is done first.
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

// When the last processor is done.
static inline int64_t clocks_end(const struct clocks *clocks)
{
    int64_t end = 0;
    for (int32_t i = 0; i < clocks->count; i++)
        end = clocks->when[i] > end ? clocks->when[i] : end;
    return end;
}

#endif
