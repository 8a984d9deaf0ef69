// SPDX-License-Identifier: Apache-2.0
// Maps rows of a tensor to consecutive rows of a packed tensor. Providers whose kernels do not
// merge work on packed tensors. The gradient of a sink is a sum over such rows.
#ifndef CPATTN_KERNELS_ROWS_H
#define CPATTN_KERNELS_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "plan/slice.h"

// Row i of the run, 0 <= i < count, is row `row + i * row_step` of the tensor and row `packed + i`
// of the packed tensor.
struct row_run {
    int64_t row, packed, count;
};

struct packed_rows {
    const struct row_run *runs; // host memory; their packed rows are consecutive, from 0
    const void *table;          // a copy of the runs on the device; NULL: none
    int32_t run_count;
    int64_t total;    // packed rows
    int64_t row_step; // rows of the tensor between consecutive rows of a run
};

// Bytes of the table.
static inline size_t packed_rows_bytes(const struct packed_rows *rows)
{
    return (size_t)rows->run_count * sizeof(*rows->runs);
}

// Sets *rows to the queries of slices, which must not share any. The caller owns runs[slice_count].
void packed_rows_of_slices(struct packed_rows *rows, struct row_run *runs,
                           const struct slice *slices, int32_t slice_count, int64_t row_step);

// Layout of packed values, one per head and row. BY_RUN: [heads][rows of the run] for each run,
// from element packed * heads. BY_ROW: [packed rows][heads].
enum packed_layout { PACKED_BY_RUN, PACKED_BY_ROW };

// Index of the value of row i of a run.
static inline int64_t packed_value(enum packed_layout layout, const struct row_run *run, int64_t i,
                                   int64_t head, int64_t heads)
{
    return layout == PACKED_BY_RUN ? run->packed * heads + head * run->count + i
                                   : (run->packed + i) * heads + head;
}

#endif
