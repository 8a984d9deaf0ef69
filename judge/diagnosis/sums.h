// SPDX-License-Identifier: Apache-2.0
// Diagnosis of results over all queries: the gradients of sinks and bias, and the largest logits.
#ifndef CPATTN_JUDGE_DIAGNOSIS_SUMS_H
#define CPATTN_JUDGE_DIAGNOSIS_SUMS_H

#include "judge/diagnosis/groups.h"

// Finds the sentence for the row of dsink or max_logit, or for rows of dbias. Fills in the groups
// of rows of dbias.
enum explains sums_find(const struct diagnosis_input *in, struct finding *result,
                        struct groups *groups);

#endif
