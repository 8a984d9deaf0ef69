// SPDX-License-Identifier: Apache-2.0
// The bytes that an operation reads and writes, computed from the text of plan/plan.h and
// kernels/attention.h. Shares no code with plan/.
#ifndef CPATTN_TESTS_PLAN_TOUCHES_H
#define CPATTN_TESTS_PLAN_TOUCHES_H

#include "plan/plan.h"

// An operand of an operation, by its index in op.operand.
struct touch {
    bool reads, writes;
    int64_t bytes; // of all its pieces; 0: the case has no such operand
};

// Fills in the operands of a compute operation. An operand that it does not have is zero.
void touches_find(const struct plan *plan, const struct op *op, struct touch touch[OPERANDS_MAX]);

#endif
