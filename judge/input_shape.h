// SPDX-License-Identifier: Apache-2.0
// The inputs of a case: their tensors, the global index of each element, and the distribution of an
// element.
#ifndef CPATTN_JUDGE_INPUT_SHAPE_H
#define CPATTN_JUDGE_INPUT_SHAPE_H

#include "plan/case.h"

enum input_tensor { INPUT_Q = 1, INPUT_K, INPUT_V, INPUT_DO, INPUT_BIAS, INPUT_SINK };

// An element, before it is rounded to the dtype, is
//     clamp((float)(sum - INPUT_SUM_MEAN) * INPUT_SUM_UNIT, -limit, limit) * factor
// with each product rounded to fp32. `sum` is philox_half_sum() of the element's block.
#define INPUT_SUM_MEAN (4 * 65535)
#define INPUT_SUM_UNIT 0x1.3988e2p-16f // 1 / sqrt(8 * (2^32 - 1) / 12)

struct input_draw {
    uint64_t seed;   // the key of the block
    uint32_t tensor; // the third word of its counter
    float limit;     // infinity: not clamped
    float factor;    // 1: not scaled
    uint32_t period; // elements whose index is a multiple of it are `constant`; 0: none
    float constant;
};

// Heads and head dimension of Q, K, V or dO.
int input_heads(const struct cp_case *c, enum input_tensor tensor);
int input_head_dim(const struct cp_case *c, enum input_tensor tensor);

// Global index of the first element of one token and head of Q, K, V or dO: ((sequence * seqlen +
// position) * heads + head) * head_dim, whatever the memory format.
uint64_t input_index(const struct cp_case *c, enum input_tensor tensor, int sequence,
                     int64_t position, int head);

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

#endif
