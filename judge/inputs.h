// SPDX-License-Identifier: Apache-2.0
// Inputs of a case: a pure function of (seed, tensor, global element), identical on every machine
// and backend, so that each rank fills its own shard and the reference regenerates any part.
//
// One Philox4x32-10 block per element: key = seed, counter = {index low, index high, tensor, 0}.
// The element is the sum of the eight 16-bit halves of the block, centred and scaled to unit
// variance: exact integer arithmetic and one fp32 product, then (TE setting) a clamp to [-1, 1] or
// (SHARP, Q only) one more fp32 product, then rounding to the case's dtype.
//
// The features of a case must have weight: with an off-by-one softmax, dimension 0 of sharp inputs
// has one value for all queries and one for all keys, whose product lowers every logit by
// weight_shift(). Sharp sinks are drawn around weight_sink() (plan/weight.h).
//
// If a case has a source (judge/source.h), the same functions return the given inputs.
#ifndef CPATTN_JUDGE_INPUTS_H
#define CPATTN_JUDGE_INPUTS_H

#include "plan/case.h"

enum input_tensor { INPUT_Q = 1, INPUT_K, INPUT_V, INPUT_DO, INPUT_BIAS, INPUT_SINK };

// An element before it is rounded to the dtype, where `sum` is that of the halves of its block
// (judge/philox.h): clamp((float)(sum - INPUT_SUM_MEAN) * INPUT_SUM_UNIT, -limit, limit) * factor,
// each product rounded to fp32.
#define INPUT_SUM_MEAN (4 * 65535)
#define INPUT_SUM_UNIT 0x1.3988e2p-16f // 1 / sqrt(8 * (2^32 - 1) / 12)

struct input_draw {
    uint64_t seed;   // the key of the block
    uint32_t tensor; // the third word of its counter
    float limit;     // infinity: not clamped
    float factor;    // 1: not scaled
    uint32_t period; // elements with an index divisible by it are `constant`; 0: none
    float constant;
};

struct input_draw input_draw_of(const struct cp_case *c, enum input_tensor tensor);

// Heads and head dimension of Q, K, V or dO.
int input_heads(const struct cp_case *c, enum input_tensor tensor);
int input_head_dim(const struct cp_case *c, enum input_tensor tensor);

// RMS of the elements of Q, K, V or dO: of the distribution that they are drawn from, or of the
// given tensor.
double input_rms(const struct cp_case *c, enum input_tensor tensor);

// Global index of the first element of one token and head of Q, K, V or dO: ((sequence * seqlen +
// position) * heads + head) * head_dim, whatever the memory format.
uint64_t input_index(const struct cp_case *c, enum input_tensor tensor, int sequence,
                     int64_t position, int head);

// Elements [head][0..head_dim) of one token, in fp32 holding exactly the rounded value.
void input_token_head(const struct cp_case *c, enum input_tensor tensor, int sequence,
                      int64_t position, int head, float *values);

// All heads of one token in the case's dtype: the row of a shard.
void input_row(const struct cp_case *c, enum input_tensor tensor, int sequence, int64_t position,
               void *row);

// Dimensions of the case's bias [batch][heads][rows][seqlen_kv], each 1 or that of the case.
struct bias_dims {
    int32_t batch, heads;
    int64_t rows;
};
struct bias_dims input_bias_dims(const struct cp_case *c);

// Global element index: ((sequence * heads + head) * rows + position) * seqlen_kv + key in the
// bias's own dimensions, with index 0 in broadcast dimensions.
uint64_t input_bias_index(const struct cp_case *c, int sequence, int head, int64_t position,
                          int64_t key);

// The bias of one query and keys [first, first + count): in fp32 with exactly the rounded values,
// or in the case's dtype. Unit normal, not clamped.
void input_bias(const struct cp_case *c, int sequence, int head, int64_t position, int64_t first,
                int64_t count, float *values);
void input_bias_row(const struct cp_case *c, int sequence, int head, int64_t position,
                    int64_t first, int64_t count, void *row);

// The logit of a head's sink: -inf without a sink, 0 with softmax off_by_one. A learnable sink is
// weight_sink() plus twice a unit normal, not rounded, with sharp inputs; 0 with
// TransformerEngine's.
float input_sink(const struct cp_case *c, int head);

#endif
