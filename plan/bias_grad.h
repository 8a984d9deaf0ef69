// SPDX-License-Identifier: Apache-2.0
// The gradient of the bias on its way from those who compute it to those who deliver it.
#ifndef CPATTN_PLAN_BIAS_GRAD_H
#define CPATTN_PLAN_BIAS_GRAD_H

#include "plan/bias.h"
#include "plan/builder.h"

// From `sum`, fp32, complete as far as this rank's heads and queries go - laid out as the rank's
// bias (plan/bias.h), but with all heads where it is summed over all ranks - to `delivered` in
// dtype.
void bias_grad_deliver(struct builder *b, struct region sum, struct region delivered);

#endif
