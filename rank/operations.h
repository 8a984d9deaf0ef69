// SPDX-License-Identifier: Apache-2.0
// Runs the compute operations of a plan as calls of a backend.
#ifndef CPATTN_RANK_OPERATIONS_H
#define CPATTN_RANK_OPERATIONS_H

#include "kernels/backend.h"
#include "plan/plan.h"
#include "rank/attends.h"

struct operations {
    const struct plan *plan;
    void *const *buffers; // memory of the plan's buffers, by index
    const struct backend_ops *ops;
    struct attention_backend *backend;
    // What is prepared of the plan. NULL: nothing; the backend's own kernels compute attention at
    // once, and there is no gradient of a sink.
    const struct attends *attends;
    void *scratch; // attends->scratch_bytes of it
};

// The first byte of a region; NULL of an empty one.
static inline void *region_memory(void *const *buffers, const struct region *r)
{
    return r->bytes == 0 ? NULL : (char *)buffers[r->buffer] + r->offset;
}

// Runs, or starts where the backend only starts, anything but an exchange.
enum status operations_run(const struct operations *x, const struct op *op,
                           struct error *error) MUST_CHECK;

#endif
