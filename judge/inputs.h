// SPDX-License-Identifier: Apache-2.0
// Inputs of a case: a pure function of (seed, tensor, global element), identical on every machine
// and backend, so that each rank fills its own shard and the reference regenerates any part.
//
// One Philox4x32-10 block per element: key = seed, counter = {index low, index high, tensor, 0}.
// The element is the sum of the eight 16-bit halves of the block, centred and scaled to unit
// variance: exact integer arithmetic and one fp32 product, then (TE setting) a clamp to [-1, 1] or
// (SHARP, Q only) one more fp32 product, then rounding to the case's dtype.
//
// The inputs must give each feature of a case enough weight in the results (plan/weight.h). With an
// off-by-one softmax, dimension 0 of sharp inputs is one constant for all queries and one for all
// keys; their product lowers every logit by weight_shift(). Sharp sinks are drawn around
// weight_sink().
//
// If a case has a source (judge/source.h), the same functions return the given inputs.
#ifndef CPATTN_JUDGE_INPUTS_H
#define CPATTN_JUDGE_INPUTS_H

#include "judge/input_shape.h"

// The distribution of the elements of a tensor that is not given.
struct input_draw input_draw_of(const struct cp_case *c, enum input_tensor tensor);

// RMS of the elements of Q, K, V or dO: of the distribution that they are drawn from, or of the
// given tensor.
double input_rms(const struct cp_case *c, enum input_tensor tensor);

// Elements [head][0..head_dim) of one token: fp32 numbers with exactly the rounded values.
void input_token_head(const struct cp_case *c, enum input_tensor tensor, int sequence,
                      int64_t position, int head, float *values);

// All heads of one token in the case's dtype: the row of a shard.
void input_row(const struct cp_case *c, enum input_tensor tensor, int sequence, int64_t position,
               void *row);

// The bias of one query and keys [first, first + count): in fp32 with exactly the rounded values,
// or in the case's dtype. Unit normal, not clamped.
void input_bias(const struct cp_case *c, int sequence, int head, int64_t position, int64_t first,
                int64_t count, float *values);
void input_bias_row(const struct cp_case *c, int sequence, int head, int64_t position,
                    int64_t first, int64_t count, void *row);

// The logit of a head's sink: -inf without a sink, 0 with softmax off_by_one. A learnable sink is 0
// with TransformerEngine's inputs; with sharp inputs it is weight_sink() plus twice a unit normal,
// not rounded.
float input_sink(const struct cp_case *c, int head);

#endif
