// SPDX-License-Identifier: Apache-2.0
// Runs of packed rows in device memory, as kernels take them.
#ifndef CPATTN_KERNELS_CUDA_ROWS_TABLE_CUH
#define CPATTN_KERNELS_CUDA_ROWS_TABLE_CUH

#include <stddef.h>
#include <string.h>

#include "common/cuda/runs.cuh"
#include "kernels/cuda/internal.h"
#include "kernels/rows.h"

// A struct row_run with the member names that run_find() needs. Packed row before + i is row
// first + i * row_step of the tensor, for i = 0..count - 1.
struct device_run {
    int64_t first, before, count;
};
static_assert(sizeof(struct device_run) == sizeof(struct row_run) &&
                  offsetof(struct device_run, first) == offsetof(struct row_run, row) &&
                  offsetof(struct device_run, before) == offsetof(struct row_run, packed) &&
                  offsetof(struct device_run, count) == offsetof(struct row_run, count),
              "the table of packed rows is a copy of their runs");

struct table {
    const struct device_run *runs; // device memory
    int count;                     // runs
    int64_t total, row_step;       // packed rows; distance of a run's rows in the tensor
};

// Uses the device table of `rows` if there is one; otherwise enqueues a copy of the runs to the
// device. False: there are no rows, or memory is short and an error is stored.
static inline bool table_make(struct attention_backend *backend, const struct packed_rows *rows,
                              struct table *t)
{
    void *device;
    *t = {(const struct device_run *)rows->table, rows->run_count, rows->total, rows->row_step};
    if (rows->total <= 0 || t->runs)
        return rows->total > 0;
    size_t bytes = packed_rows_bytes(rows);
    void *host = staging_take(backend, bytes, &device);
    if (!host)
        return false;
    memcpy(host, rows->runs, bytes);
    staging_push(backend, device, host, bytes);
    t->runs = (const struct device_run *)device;
    return true;
}

#endif
