// SPDX-License-Identifier: Apache-2.0
// Slices may overlap in their rows. Cutting the rows wherever a slice begins or ends gives
// intervals that each slice covers completely or not at all. Host code.
#ifndef CPATTN_KERNELS_CUDA_INTERVALS_H
#define CPATTN_KERNELS_CUDA_INTERVALS_H

#include <stddef.h>

#include "common/status.h"
#include "plan/slice.h"

#ifdef __cplusplus
extern "C" {
#endif

enum interval_side { INTERVAL_Q, INTERVAL_KV };

// Rows residue + i * row_step for begin <= i < end, with residue < row_step. The slices that cover
// them are covering_count elements of `slices` of struct intervals, from index `covering` on,
// ascending.
struct interval {
    int64_t residue, begin, end;
    int32_t covering, covering_count;
};

struct intervals {
    struct interval *all; // by residue, then begin; each covered by a slice, none empty
    int32_t *slices;      // indices of slices
    int32_t count, slice_count;
    int32_t capacity, slice_capacity;
};

// Builds the intervals of one side. Slices without queries or without keys are ignored. The list
// owns its memory: intervals_fini() frees it, after a failure too. RESOURCE_EXHAUSTED: memory is
// short.
enum status intervals_build(struct intervals *list, const struct slice *slices, int32_t slice_count,
                            int64_t row_step, enum interval_side side,
                            struct error *error) MUST_CHECK;
void intervals_fini(struct intervals *list);

// Index of the interval that contains row residue + position * row_step; it must exist.
int32_t intervals_find(const struct intervals *list, int64_t residue, int64_t position);

// Makes room for `more` elements after the first `count`. Returns the array, which may have moved.
// NULL: memory is short, and the array is unchanged.
void *array_reserve(void *array, size_t size, int32_t count, int32_t more, int32_t *capacity);

#ifdef __cplusplus
}
#endif

#endif
