// SPDX-License-Identifier: Apache-2.0
// Transport of the bias's gradient from the ranks that compute it to the ranks that deliver it.
#ifndef CPATTN_PLAN_BIAS_GRAD_H
#define CPATTN_PLAN_BIAS_GRAD_H

#include "plan/bias.h"
#include "plan/builder.h"

// Combines the gradients `sum` (fp32) of the ranks into `delivered` (dtype). `sum` is complete for
// this rank's heads and queries. Its layout is that of the rank's bias (plan/bias.h), but with all
// heads if the gradient is summed over all ranks.
void bias_grad_deliver(struct builder *b, struct region sum, struct region delivered);

#endif
