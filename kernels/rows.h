// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor that lie one behind the other in a packed one: what providers work on whose
// kernels do not merge, and what the gradient of a sink is summed up over.
#ifndef CPATTN_KERNELS_ROWS_H
#define CPATTN_KERNELS_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "plan/slice.h"

// Row i of the run is row `row + i * row_step` of the tensor and row `packed + i` of the packed
// one.
struct row_run {
    int64_t row, packed, count;
};

struct packed_rows {
    const struct row_run *runs; // host memory; the packed rows ascend without a gap from 0 on
    const void *table;          // a copy of them on the device; NULL: there is none
    int32_t run_count;
    int64_t total;    // packed rows
    int64_t row_step; // between the rows of a run
};

// Bytes of the table.
static inline size_t packed_rows_bytes(const struct packed_rows *rows)
{
    return (size_t)rows->run_count * sizeof(*rows->runs);
}

// The queries of slices, which must not share any. The caller owns runs[slice_count].
void packed_rows_of_slices(struct packed_rows *rows, struct row_run *runs,
                           const struct slice *slices, int32_t slice_count, int64_t row_step);

// Where a value of a head and a packed row lies: [heads][rows of the run], from element packed *
// heads of the run on; or [packed rows][heads].
enum packed_layout { PACKED_BY_RUN, PACKED_BY_ROW };

static inline int64_t packed_value(enum packed_layout layout, const struct row_run *run, int64_t i,
                                   int64_t head, int64_t heads)
{
    return layout == PACKED_BY_RUN ? run->packed * heads + head * run->count + i
                                   : (run->packed + i) * heads + head;
}

#endif
