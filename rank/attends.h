// SPDX-License-Identifier: Apache-2.0
// Which provider computes each attention of a plan. The choice is made here and nowhere else.
#ifndef CPATTN_RANK_ATTENDS_H
#define CPATTN_RANK_ATTENDS_H

#include "common/report.h"
#include "kernels/provider.h"
#include "plan/plan.h"

// One operation of a plan.
struct attend {
    struct attention_provider *provider; // NULL: it is no attention
    struct prepared_op *prepared;
    struct region o; // backward: the running result of the forward, fp32; empty: it is gone by then
};

struct attends {
    const struct plan *plan;
    struct attend *list;  // by index of the operation
    size_t scratch_bytes; // what any of them needs; they run one after the other
    struct provider_use use;
};

// Chooses and prepares. `wanted` is the provider that the case names; NULL: it names none, and our
// own computes all. What the wanted one does not support is computed by `own` where `fallback`
// allows it, else the case is refused: UNIMPLEMENTED with the operation and the reason.
// RESOURCE_EXHAUSTED when memory is short. Borrows plan and providers until attends_destroy(),
// which takes NULL.
enum status attends_create(const struct plan *plan, struct attention_provider *own,
                           struct attention_provider *wanted, bool fallback,
                           struct attends **attends, struct error *error) MUST_CHECK;
void attends_destroy(struct attends *attends);

#endif
