// SPDX-License-Identifier: Apache-2.0
// Element access for the verification. It draws the inputs with code of its own, so that it also
// detects errors in the code that fills the tensors.
#ifndef CPATTN_JUDGE_CUDA_ELEMENT_CUH
#define CPATTN_JUDGE_CUDA_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" {
#include "judge/inputs.h"
}
#include "judge/philox.h"

static __device__ __forceinline__ float element_rounded(enum case_dtype dtype, float x)
{
    if (dtype == DTYPE_BF16)
        return __bfloat162float(__float2bfloat16_rn(x));
    return dtype == DTYPE_FP16 ? __half2float(__float2half_rn(x)) : x;
}

// Draws element `index` of an input, rounded to the dtype. The definition is in judge/inputs.h.
static __device__ __forceinline__ float element_drawn(const input_draw &draw, enum case_dtype dtype,
                                                      uint64_t index)
{
    if (draw.period != 0 && index % draw.period == 0)
        return element_rounded(dtype, draw.constant);
    struct philox_block counter = {{(uint32_t)index, (uint32_t)(index >> 32), draw.tensor, 0}};
    int sum = (int)philox_half_sum(philox_block(counter, draw.seed)) - INPUT_SUM_MEAN;
    float x = __fmul_rn((float)sum, INPUT_SUM_UNIT);
    x = fminf(fmaxf(x, -draw.limit), draw.limit);
    return element_rounded(dtype, __fmul_rn(x, draw.factor));
}

// Reads element `index` of an array of the dtype.
static __device__ __forceinline__ float element_loaded(enum case_dtype dtype, const void *data,
                                                       int64_t index)
{
    if (dtype == DTYPE_BF16)
        return __bfloat162float(((const __nv_bfloat16 *)data)[index]);
    if (dtype == DTYPE_FP16)
        return __half2float(((const __half *)data)[index]);
    return ((const float *)data)[index];
}

#endif
