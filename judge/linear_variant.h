// SPDX-License-Identifier: Apache-2.0
// A variant is a layer with a mistake. These are the elements of a sample that it would have.
#ifndef CPATTN_JUDGE_LINEAR_VARIANT_H
#define CPATTN_JUDGE_LINEAR_VARIANT_H

#include "judge/linear_mistake.h"
#include "judge/linear_sample.h"

// Fills `values` with the elements of the variant. Tokens change places among the first
// SAMPLE_PAIRS ranks, and features are those of one of the first SAMPLE_OTHERS.
void linear_variant_compute(struct linear_sample *m, struct linear_variant variant, double *values);

#endif
