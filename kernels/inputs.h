// SPDX-License-Identifier: Apache-2.0
// Inputs of a case: a pure function of (seed, tensor, global element), identical on every machine and
// backend, so that each rank fills its own shard and the reference regenerates any part.
//
// One Philox4x32-10 block per element: key = seed, counter = {index low, index high, tensor, 0}. The
// element is the sum of the eight 16-bit halves of the block, centred and scaled to unit variance: exact
// integer arithmetic and one fp32 product, then (TE setting) a clamp to [-1, 1] or (SHARP, Q only) one
// more fp32 product, then rounding to the case's dtype.
#ifndef CPATTN_KERNELS_INPUTS_H
#define CPATTN_KERNELS_INPUTS_H

#include "plan/case.h"

enum input_tensor { INPUT_Q = 1, INPUT_K, INPUT_V, INPUT_DO };

// Heads and head dimension of a tensor of the case.
int input_heads(const struct cp_case *c, enum input_tensor tensor);
int input_head_dim(const struct cp_case *c, enum input_tensor tensor);

// Elements [head][0..head_dim) of one token, in fp32 holding exactly the rounded value. Global element
// index: ((sequence * seqlen + position) * heads + head) * head_dim + i, whatever the memory format.
void input_token_head(const struct cp_case *c, enum input_tensor tensor, int sequence,
                      int64_t position, int head, float *values);

// All heads of one token in the case's dtype: the row of a shard.
void input_row(const struct cp_case *c, enum input_tensor tensor, int sequence, int64_t position,
               void *row);

// Conversions used at the edges of the CPU side; round to nearest even, NaN stays NaN.
float dtype_load(enum case_dtype dtype, const void *data, int64_t index);
void dtype_store(enum case_dtype dtype, void *data, int64_t index, float value);

#endif
