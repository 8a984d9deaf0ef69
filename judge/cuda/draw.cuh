// SPDX-License-Identifier: Apache-2.0
// Draws an element of the inputs on the device, with the same bits as judge/inputs.h. All
// operations are on integers or are single fp32 products with rounding; there is no fp32 addition
// that a compiler could fuse with a product.
#ifndef CPATTN_JUDGE_CUDA_DRAW_CUH
#define CPATTN_JUDGE_CUDA_DRAW_CUH

extern "C" {
#include "judge/inputs.h"
}
#include "judge/philox.h"

// Element `index` of a tensor, before rounding to the dtype (judge/cuda/dtype.cuh).
static __device__ __forceinline__ float draw_value(struct input_draw draw, uint64_t index)
{
    if (draw.period != 0 && index % draw.period == 0)
        return draw.constant;
    struct philox_block counter = {{(uint32_t)index, (uint32_t)(index >> 32), draw.tensor, 0}};
    int sum = (int)philox_half_sum(philox_block(counter, draw.seed));
    float x = __fmul_rn(__int2float_rn(sum - INPUT_SUM_MEAN), INPUT_SUM_UNIT);
    x = x > draw.limit ? draw.limit : x;
    x = x < -draw.limit ? -draw.limit : x;
    return __fmul_rn(x, draw.factor);
}

#endif
