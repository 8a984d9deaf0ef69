// SPDX-License-Identifier: Apache-2.0
// Inputs of a case: a pure function of (seed, tensor, global element), identical on every machine
// and backend, so that each rank fills its own shard and the reference regenerates any part.
//
// One Philox4x32-10 block per element: key = seed, counter = {index low, index high, tensor, 0}.
// The element is the sum of the eight 16-bit halves of the block, centred and scaled to unit
// variance: exact integer arithmetic and one fp32 product, then (TE setting) a clamp to [-1, 1] or
// (SHARP, Q only) one more fp32 product, then rounding to the case's dtype.
//
// What a case asks for has to matter: with an off-by-one softmax sharp inputs have one number for
// all queries and one for all keys in dimension 0, whose product lowers every logit by
// weight_shift(), and sharp sinks are drawn around weight_sink() (plan/weight.h).
//
// A case that has a source (judge/source.h) has its inputs from there, under the same functions.
#ifndef CPATTN_JUDGE_INPUTS_H
#define CPATTN_JUDGE_INPUTS_H

#include "plan/case.h"

enum input_tensor { INPUT_Q = 1, INPUT_K, INPUT_V, INPUT_DO, INPUT_BIAS, INPUT_SINK };

// An element before it is rounded to the dtype, where `sum` is that of the halves of its block
// (judge/philox.h): clamp((float)(sum - INPUT_SUM_MEAN) * INPUT_SUM_UNIT, -limit, limit) *
// factor, each product rounded to fp32.
#define INPUT_SUM_MEAN (4 * 65535)
#define INPUT_SUM_UNIT 0x1.3988e2p-16f // 1 / sqrt(8 * (2^32 - 1) / 12)

struct input_draw {
    uint64_t seed;   // the key of the block
    uint32_t tensor; // the third word of its counter
    float limit;     // infinite where nothing is clamped
    float factor;    // 1 where nothing is scaled
    uint32_t period; // elements whose index it divides are `constant` instead; 0: none is
    float constant;
};

struct input_draw input_draw_of(const struct cp_case *c, enum input_tensor tensor);

// Heads and head dimension of Q, K, V or dO.
int input_heads(const struct cp_case *c, enum input_tensor tensor);
int input_head_dim(const struct cp_case *c, enum input_tensor tensor);

// Global index of the first element of one token and head of Q, K, V or dO:
// ((sequence * seqlen + position) * heads + head) * head_dim, whatever the memory format.
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
// bias's own dimensions, 0 taken for what it has once for all.
uint64_t input_bias_index(const struct cp_case *c, int sequence, int head, int64_t position,
                          int64_t key);

// What is added to the logits of one query and keys [first, first + count): in fp32 holding exactly
// the rounded values, or in the case's dtype. Unit normal, not clamped.
void input_bias(const struct cp_case *c, int sequence, int head, int64_t position, int64_t first,
                int64_t count, float *values);
void input_bias_row(const struct cp_case *c, int sequence, int head, int64_t position,
                    int64_t first, int64_t count, void *row);

// The logit of a head's sink: -inf where there is none, 0 with softmax off_by_one. A learnable one
// is weight_sink() and twice a unit normal, not rounded, with sharp inputs; 0 with those of
// TransformerEngine.
float input_sink(const struct cp_case *c, int head);

#endif
