// SPDX-License-Identifier: Apache-2.0
#include "kernels/rows.h"

void packed_rows_of_slices(struct packed_rows *rows, struct row_run *runs,
                           const struct slice *slices, int32_t slice_count, int64_t row_step)
{
    *rows = (struct packed_rows){.runs = runs, .row_step = row_step};
    for (int32_t i = 0; i < slice_count; i++) {
        if (slices[i].q_len <= 0)
            continue;
        runs[rows->run_count++] = (struct row_run){slices[i].q_row, rows->total, slices[i].q_len};
        rows->total += slices[i].q_len;
    }
}
