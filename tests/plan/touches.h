// SPDX-License-Identifier: Apache-2.0
// What an operation reads and writes, from the words of plan/plan.h and kernels/attention.h: no
// code is shared with what is tested.
#ifndef CPATTN_TESTS_PLAN_TOUCHES_H
#define CPATTN_TESTS_PLAN_TOUCHES_H

#include "plan/plan.h"

// An operand that an operation has, by its place in op.operand.
struct touch {
    bool reads, writes;
    int64_t bytes; // of all its pieces; 0: the case has no such thing
};

// Those of a compute operation; all false where it has no such operand.
void touches_find(const struct plan *plan, const struct op *op, struct touch touch[OPERANDS_MAX]);

#endif
