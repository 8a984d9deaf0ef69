// SPDX-License-Identifier: Apache-2.0
// The weight of a case's features in its results: estimates from the distribution of its inputs,
// the same on every machine.
//
// The logits of a query are normally distributed, because the keys are. The number of keys and the
// deviation of the logits give the logarithm of the sum of exp(logit). A sink is compared to this
// sum.
#ifndef CPATTN_PLAN_WEIGHT_H
#define CPATTN_PLAN_WEIGHT_H

#include <stddef.h>

#include "plan/case.h"

// Average number of keys that a query sees, at least 1.
double weight_keys(const struct cp_case *c);

// Logarithm of the sum of exp(logit) over the keys that an average query sees, without a sink and
// before weight_shift().
double weight_logsum(const struct cp_case *c);

// The amount by which sharp inputs lower all logits, so that the 1 of an off-by-one softmax weighs
// about as much as all keys together; a whole number, 0: not lowered. A softcap limits it. Lowering
// uses one dimension of the head, so a head of dimension 1 cannot be lowered.
int weight_shift(const struct cp_case *c);

// Mean of sharp sinks: sinks around it weigh about as much as all keys together.
int weight_sink(const struct cp_case *c);

// Names the features that weigh too little with these inputs for a verdict to depend on them, as
// "the window hides no key". Sentences without a final stop, separated by "; "; "" if there is
// none, and for a case that is not verified. Returns the length as snprintf does; CASE_BLIND_MAX
// bytes suffice.
#define CASE_BLIND_MAX 640
int case_blind(const struct cp_case *c, char *text, size_t size);

#endif
