// SPDX-License-Identifier: Apache-2.0
// What a sample of a result would be with a mistake.
#ifndef CPATTN_JUDGE_LINEAR_MISTAKEN_H
#define CPATTN_JUDGE_LINEAR_MISTAKEN_H

#include "judge/linear_mistake.h"
#include "judge/linear_sample.h"

// Fills `values` with its elements. Tokens change places among the first SAMPLE_PAIRS ranks, and
// features are those of one of the first SAMPLE_OTHERS.
void linear_mistaken_compute(struct linear_sample *m, struct linear_variant variant,
                             double *values);

#endif
