// SPDX-License-Identifier: Apache-2.0
// The part of case_check() that looks at lists; the rest of plan/lengths.c is in plan/case.h.
#ifndef CPATTN_PLAN_LENGTHS_H
#define CPATTN_PLAN_LENGTHS_H

#include "plan/case.h"

// The lists against each other and the other fields, whose ranges have been checked.
enum status lengths_check(const struct cp_case *c, struct error *error) MUST_CHECK;

#endif
