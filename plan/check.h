// SPDX-License-Identifier: Apache-2.0
// Shared by the two files of the checker; other code calls plan_check().
#ifndef CPATTN_PLAN_CHECK_H
#define CPATTN_PLAN_CHECK_H

#include "plan/plan.h"

// Writes an operation as "operation 3 (attend, forward step 1)". Returns `text`.
#define CHECK_TEXT_MAX 64
const char *check_op_text(const struct plan *plan, int32_t index, char text[CHECK_TEXT_MAX]);

// Checks each buffer and operation by itself: roles, sizes, ranges, matching operands. Afterwards
// every index is valid.
enum status check_fit(const struct plan *plan, struct error *error) MUST_CHECK;

#endif
