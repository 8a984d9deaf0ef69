// SPDX-License-Identifier: Apache-2.0
// Errors in waits only.
#include "tests/mutations/changes.h"
#include "tests/mutations/edit.h"
#include "tests/mutations/mutations.h"

struct mutation_place mutation_place;

bool missing_wait(struct plan *plan)
{
    bool any = false;
    for (int32_t i = 0; i < plan->op_count; i++) {
        struct op *op = &plan->ops[i];
        int32_t kept = 0, *waits = plan->waits + op->wait_first;
        for (int32_t k = 0; k < op->wait_count && edit_is_attend(op); k++)
            if (plan->ops[waits[k]].kind != OP_EXCHANGE)
                waits[kept++] = waits[k];
        if (!edit_is_attend(op) || kept == op->wait_count)
            continue;
        op->wait_count = kept;
        any = true;
    }
    return any;
}

bool wait_left_out(struct plan *plan)
{
    if (plan->rank != mutation_place.rank || plan->ops[mutation_place.op].wait_count == 0)
        return false;
    plan->ops[mutation_place.op].wait_count = 0;
    return true;
}
