// SPDX-License-Identifier: Apache-2.0
// What the features of a case weigh with the inputs that it asks for: estimates from the
// distribution of the inputs, the same on every machine.
//
// The logits of a query are normal, since its keys are. How many of them are how large tells the
// logarithm of the sum of their exponentials, which is what a sink is to be compared with.
#ifndef CPATTN_PLAN_WEIGHT_H
#define CPATTN_PLAN_WEIGHT_H

#include <stddef.h>

#include "plan/case.h"

// Keys that a query sees on average, at least 1.
double weight_keys(const struct cp_case *c);

// The logarithm of the sum of exp(logit) over the keys that such a query sees, without a sink and
// without what weight_shift() takes from the logits.
double weight_logsum(const struct cp_case *c);

// By how much sharp inputs lower all logits, so that the 1 of an off-by-one softmax weighs about as
// much as all keys together: a whole number, 0 where nothing is lowered. A bounded logit can not be
// lowered far. It takes a dimension of its own; a head that has no other has none to spare.
int weight_shift(const struct cp_case *c);

// Around which number sharp sinks are drawn, so that they weigh about as much as all keys together.
int weight_sink(const struct cp_case *c);

// What a verdict on this case would not notice, since it weighs too little with these inputs, as
// "the window hides no key". Sentences without a final stop, with "; " between them; "" where there
// is nothing to say, and for a case that is not verified. Returns the length as snprintf does;
// CASE_BLIND_MAX is room for any.
#define CASE_BLIND_MAX 640
int case_blind(const struct cp_case *c, char *text, size_t size);

#endif
