// SPDX-License-Identifier: Apache-2.0
// Slices may overlap in their rows. Cut where one of them begins or ends, the rows fall into
// intervals that every slice covers whole or not at all. Host code.
#ifndef CPATTN_KERNELS_CUDA_INTERVALS_H
#define CPATTN_KERNELS_CUDA_INTERVALS_H

#include <stddef.h>

#include "common/status.h"
#include "plan/slice.h"

#ifdef __cplusplus
extern "C" {
#endif

enum interval_side { INTERVAL_Q, INTERVAL_KV };

// Rows residue + i * row_step for begin <= i < end, residue < row_step. covering: the slices that
// cover them, in `slices` of the list, ascending.
struct interval {
    int64_t residue, begin, end;
    int32_t covering, covering_count;
};

struct intervals {
    struct interval *all; // by residue, then begin; all covered, none empty
    int32_t *slices;      // indices
    int32_t count, slice_count;
    int32_t capacity, slice_capacity;
};

// Slices without queries or without keys count as none. The memory is the list's:
// intervals_fini() frees it, after a failure too. RESOURCE_EXHAUSTED when it is short.
enum status intervals_build(struct intervals *list, const struct slice *slices, int32_t slice_count,
                            int64_t row_step, enum interval_side side,
                            struct error *error) MUST_CHECK;
void intervals_fini(struct intervals *list);

// Index of the interval that holds row residue + position * row_step; there must be one.
int32_t intervals_find(const struct intervals *list, int64_t residue, int64_t position);

// Makes room for `more` elements behind `count`. Returns the array, which may have moved; NULL when
// memory is short.
void *array_reserve(void *array, size_t size, int32_t count, int32_t more, int32_t *capacity);

#ifdef __cplusplus
}
#endif

#endif
