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
    // Prepared operations of the plan. NULL: none; the backend's own kernels compute attention
    // without preparation, and the plan has no gradient of a sink.
    const struct attends *attends;
    void *scratch; // attends->scratch_bytes; for linear layers on a device linear_wide_bytes()
};

// Address of the first byte of a region; NULL: it is empty.
static inline void *region_memory(void *const *buffers, const struct region *r)
{
    return r->bytes == 0 ? NULL : (char *)buffers[r->buffer] + r->offset;
}

// Lists the regions that an OP_FILL must still set, and returns their number. Attentions may set
// the others (plan/folds.h).
int operations_fill_parts(const struct operations *x, const struct op *op,
                          struct region parts[FOLD_PARTS_MAX]);

// Runs any operation except an exchange; an asynchronous backend only starts it.
enum status operations_run(const struct operations *x, const struct op *op,
                           struct error *error) MUST_CHECK;

#endif
