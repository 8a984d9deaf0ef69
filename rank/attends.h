// SPDX-License-Identifier: Apache-2.0
// Preparation of a plan before it runs: selects the provider of each attention (nothing else does),
// and puts the tables of all operations on the device in one piece.
#ifndef CPATTN_RANK_ATTENDS_H
#define CPATTN_RANK_ATTENDS_H

#include "common/report.h"
#include "kernels/provider.h"
#include "plan/folds.h"
#include "plan/plan.h"

// One operation of a plan.
struct attend {
    struct attention_provider *provider; // NULL: the operation is not an attention
    struct prepared_op *prepared;
    struct region o; // backward: O of the forward, fp32; empty: overwritten before this operation
    struct packed_rows *rows; // rows of a sink gradient; NULL: another operation
    struct op_needs needs;
};

struct attends {
    const struct plan *plan;
    uint64_t number; // unique in the process
    const struct own_provider *own;
    struct attend *list;  // by index of the operation
    struct fold *folds;   // by index of the operation
    size_t scratch_bytes; // maximum over the operations, which run one after the other
    void *zeros;          // memory of all operations that attends_begin() clears; NULL: none
    size_t zero_bytes;
    struct provider_use use; // for the report
};

// The shape of an operation that has heads (struct op, `heads`).
struct attention_shape attends_shape(const struct plan *plan, const struct op *op);

// Selects providers, prepares the operations, and puts the tables on the device. `wanted` is the
// provider that the case names; NULL: none, and `own` computes everything. With `fallback`, `own`
// computes the operations that `wanted` does not support; without it the case is refused:
// UNIMPLEMENTED with the operation and the reason. RESOURCE_EXHAUSTED: out of memory. Borrows plan
// and providers until attends_destroy(), which accepts NULL. A backend has the attends of one plan
// at a time.
enum status attends_create(const struct plan *plan, struct own_provider *own,
                           struct attention_provider *wanted, bool fallback,
                           struct attends **attends, struct error *error) MUST_CHECK;
void attends_destroy(struct attends *attends);

// Call before each run of the plan: clears the memory that operations expect to be zero.
void attends_begin(const struct attends *attends);

#endif
