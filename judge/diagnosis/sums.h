// SPDX-License-Identifier: Apache-2.0
// What is summed up over queries: the gradients of sinks and bias, and the largest logits.
#ifndef CPATTN_JUDGE_DIAGNOSIS_SUMS_H
#define CPATTN_JUDGE_DIAGNOSIS_SUMS_H

#include "judge/diagnosis.h"

// Finds the sentence for a row of dsink or max_logit, or rows of dbias.
void sums_find(const struct diagnosis_input *in, struct finding *result);

#endif
