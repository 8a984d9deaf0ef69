// SPDX-License-Identifier: Apache-2.0
// What the two files of the checker share; everybody else calls plan_check().
#ifndef CPATTN_PLAN_CHECK_H
#define CPATTN_PLAN_CHECK_H

#include "plan/plan.h"

// "operation 3 (attend, forward step 1)".
#define CHECK_TEXT_MAX 64
const char *check_op_text(const struct plan *plan, int32_t index, char text[CHECK_TEXT_MAX]);

// Each buffer and operation by itself: roles, sizes, ranges, what must fit to what. After it the
// rest of the checker can rely on every index.
enum status check_fit(const struct plan *plan, struct error *error) MUST_CHECK;

#endif
