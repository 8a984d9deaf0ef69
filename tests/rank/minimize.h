// SPDX-License-Identifier: Apache-2.0
// Makes a failing case small, so that a person can look at it.
#ifndef CPATTN_TESTS_RANK_MINIMIZE_H
#define CPATTN_TESTS_RANK_MINIMIZE_H

#include "plan/case.h"

// Whether a case still fails. Of what case_check() refuses it is not asked.
typedef bool minimize_fails(const struct cp_case *c, void *context);

// Takes away what the failure does not need: ranks, sequences, heads, tokens, dimensions, features.
// In the end no single step leads to a smaller case that still fails, unless `tries` cases had been
// asked about before. The case has to fail. Returns how many were asked about.
int minimize_case(struct cp_case *c, minimize_fails *fails, void *context, int tries);

#endif
