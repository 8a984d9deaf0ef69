// SPDX-License-Identifier: Apache-2.0
// A rank's shard of the inputs.
#ifndef CPATTN_RANK_INPUTS_H
#define CPATTN_RANK_INPUTS_H

#include "judge/inputs.h"
#include "plan/shard.h"

// Fills the rank's local part of an input tensor (layout: plan/shard.h), in the case's dtype.
// `spans` are all spans of the rank on the tensor's side. Padding becomes NaN, so that reading it
// is noticed.
void inputs_fill(const struct cp_case *c, enum input_tensor tensor, int rank,
                 const struct span *spans, int count, void *data);

// Fills the rows of the rank's bias (layout: plan/bias.h) that its queries use. `spans` is scratch
// with room for shard_spans_max().
void inputs_fill_bias(const struct cp_case *c, int rank, struct span *spans, void *data);

// Fills the sinks [heads of the case].
void inputs_fill_sink(const struct cp_case *c, float *sinks);

#endif
