// SPDX-License-Identifier: Apache-2.0
// Makes a failing case small, so that a person can look at it.
#ifndef CPATTN_PLAN_MINIMIZE_H
#define CPATTN_PLAN_MINIMIZE_H

#include "plan/case.h"

// Returns true if a case still fails. Only called for cases that case_check() admits.
typedef bool minimize_fails(const struct cp_case *c, void *context);

// Removes ranks, sequences, heads, tokens, dimensions and features that the failure does not need,
// until no single step gives a smaller failing case or `tries` cases were tried. The case must
// fail. Returns the number of tried cases.
int minimize_case(struct cp_case *c, minimize_fails *fails, void *context, int tries);

#endif
