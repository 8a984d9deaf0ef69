// SPDX-License-Identifier: Apache-2.0
// Comparison of the reports of two judges.
#ifndef CPATTN_TESTS_SUPPORT_FIGURES_H
#define CPATTN_TESTS_SUPPORT_FIGURES_H

#include <stdbool.h>

#include "common/report.h"

// The figures of the same tensor and chunk, or NULL.
const struct figures *figures_find(const struct rank_report *r, const struct figures *like);

// True for the same bits, or two NaN.
bool doubles_same(double a, double b);

// True if all numbers are the same.
bool figures_same(const struct figures *a, const struct figures *b);

#endif
