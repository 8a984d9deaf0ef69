// SPDX-License-Identifier: Apache-2.0
// tanh of the softcap on sm_90a. Where all arguments of a warp are near 0, it is a polynomial on
// the FMA units, because the special function units are busy with the exponentials of the weights.
// Elsewhere it is computed from an exponential.
#ifndef CPATTN_KERNELS_CUDA_SM90_CAP_CUH
#define CPATTN_KERNELS_CUDA_SM90_CAP_CUH

#include "kernels/cuda/cap_series.h"
#include "kernels/cuda/sm90.cuh"

// Bounds of |x| in a warp: 0.2, CAP_NEAR_REACH, none.
enum cap_reach { CAP_CLOSE, CAP_NEAR, CAP_FAR };

// Reach of a warp, given the largest magnitude that each thread has. Called by the whole warp.
static __device__ __forceinline__ enum cap_reach cap_reach_within(float x)
{
    if (__all_sync(0xffffffffu, x <= 0.2f))
        return CAP_CLOSE;
    return __all_sync(0xffffffffu, x <= CAP_NEAR_REACH) ? CAP_NEAR : CAP_FAR;
}

// Reach of a warp's products times `factor`. Called by the whole warp.
template <int COUNT>
__device__ __forceinline__ enum cap_reach cap_reach_of(const float (&products)[COUNT], float factor)
{
    float most[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        most[i % 2] = fmaxf(most[i % 2], fabsf(products[i]));
    return cap_reach_within(fmaxf(most[0], most[1]) * fabsf(factor));
}

// tanh(x) / x for |x| <= 0.2, as a series in x^2, with a relative error of 2e-7.
#define CAP_CLOSE_SERIES 0.999999881f, -0.333285898f, 0.130154073f

// terms[0] + terms[1] z + terms[2] z^2 + ...
template <int TERMS>
__device__ __forceinline__ float series_of(const float (&terms)[TERMS], float z)
{
    float sum = terms[TERMS - 1];
#pragma unroll
    for (int i = TERMS - 2; i >= 0; i--)
        sum = fmaf(z, sum, terms[i]);
    return sum;
}

// The largest magnitude of some numbers, from the largest of their bits: as unsigned integers, of
// which the most negative number is largest, and as signed integers, of which the largest positive
// number is. NaN if one of them is NaN: it would hide the others of its sign.
static __device__ __forceinline__ float magnitude_of(unsigned below, int above)
{
    return __int_as_float(max((int)(below & 0x7fffffff), above));
}

// Largest magnitude of a thread's products; NaN if one of them is NaN.
template <int COUNT> __device__ __forceinline__ float products_reach(const float (&products)[COUNT])
{
    unsigned below = 0;
    int above = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        int bits[2] = {__float_as_int(products[i]), __float_as_int(products[i + 1])};
        below = __vimax3_u32(below, (unsigned)bits[0], (unsigned)bits[1]);
        above = __vimax3_s32(above, bits[0], bits[1]);
    }
    return magnitude_of(below, above);
}

// tanh(x) for x within REACH, which is CAP_CLOSE or CAP_NEAR.
template <enum cap_reach REACH> __device__ __forceinline__ float cap_tanh(float x)
{
    const float close[] = {CAP_CLOSE_SERIES}, near[] = {CAP_NEAR_SERIES};
    return x * (REACH == CAP_CLOSE ? series_of(close, x * x) : series_of(near, x * x));
}

// ---- any argument -------------------------------------------------------------------------------

// tanh(x) for any x. Sets *slope to 1 - tanh^2, computed without the cancellation of that formula.
static __device__ __forceinline__ float cap_tanh_far(float x, float *slope)
{
    float e = fast_exp2(fabsf(x) * -2.885390081777927f), half = __fdividef(1, 1 + e);
    *slope = 4 * e * half * half;
    return fabsf(x) < 0.8f ? cap_tanh<CAP_NEAR>(x) : copysignf((1 - e) * half, x);
}

#endif
