// SPDX-License-Identifier: Apache-2.0
// A variant is a layer with a mistake. Computes the elements of a sample that the variant would
// deliver.
#ifndef CPATTN_JUDGE_LINEAR_VARIANT_H
#define CPATTN_JUDGE_LINEAR_VARIANT_H

#include "judge/linear_mistake.h"
#include "judge/linear_sample.h"

// Fills `values` with the sampled elements of the variant. Ranks that exchange tokens must be among
// the first SAMPLE_PAIRS; the rank of MISTAKE_OTHER_SHARD among the first SAMPLE_OTHERS.
void linear_variant_compute(struct linear_sample *m, struct linear_variant variant, double *values);

#endif
