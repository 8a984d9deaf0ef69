// SPDX-License-Identifier: Apache-2.0
// Transport of the bias's gradient from the ranks that compute it to the ranks that deliver it.
#ifndef CPATTN_PLAN_BIAS_GRAD_H
#define CPATTN_PLAN_BIAS_GRAD_H

#include "plan/bias.h"
#include "plan/builder.h"

// Converts `sum` to `delivered` in dtype. `sum` is fp32, complete for this rank's heads and
// queries, with the layout of the rank's bias (plan/bias.h), but with all heads if it is summed
// over all ranks.
void bias_grad_deliver(struct builder *b, struct region sum, struct region delivered);

#endif
