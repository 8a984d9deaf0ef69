// SPDX-License-Identifier: Apache-2.0
// tanh of softcap on sm_90a. Where no argument of a warp is far from 0 it is a polynomial: the
// units that compute exponentials are busy with the weights. Elsewhere it is made of an
// exponential.
#ifndef CPATTN_KERNELS_CUDA_SM90_CAP_CUH
#define CPATTN_KERNELS_CUDA_SM90_CAP_CUH

#include "kernels/cuda/sm90.cuh"

#define CAP_NEAR_REACH 0.8f

enum cap_reach { CAP_CLOSE, CAP_NEAR, CAP_FAR };

// The reach of a warp, of a thread's largest magnitude.
static __device__ __forceinline__ enum cap_reach cap_reach_within(float x)
{
    if (__all_sync(0xffffffffu, x <= 0.2f))
        return CAP_CLOSE;
    return __all_sync(0xffffffffu, x <= CAP_NEAR_REACH) ? CAP_NEAR : CAP_FAR;
}

// How far from 0 the products of a warp are, times `factor`.
template <int COUNT>
__device__ __forceinline__ enum cap_reach cap_reach_of(const float (&products)[COUNT], float factor)
{
    float most[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        most[i % 2] = fmaxf(most[i % 2], fabsf(products[i]));
    return cap_reach_within(fmaxf(most[0], most[1]) * fabsf(factor));
}

// tanh(x) / x within the reach, as a series in x^2, with a relative error of 2e-7.
#define CAP_CLOSE_SERIES 0.999999881f, -0.333285898f, 0.130154073f
#define CAP_NEAR_SERIES                                                                            \
    0.99999994f, -0.333326757f, 0.133210480f, -0.0531143174f, 0.0190933011f, -0.00435529975f

template <int TERMS>
__device__ __forceinline__ float cap_series(const float (&terms)[TERMS], float z)
{
    float sum = terms[TERMS - 1];
#pragma unroll
    for (int i = TERMS - 2; i >= 0; i--)
        sum = fmaf(z, sum, terms[i]);
    return sum;
}

// tanh(x) for x within the reach.
template <enum cap_reach REACH> __device__ __forceinline__ float cap_tanh(float x)
{
    const float close[] = {CAP_CLOSE_SERIES}, near[] = {CAP_NEAR_SERIES};
    return x * (REACH == CAP_CLOSE ? cap_series(close, x * x) : cap_series(near, x * x));
}

// ---- tenfold ------------------------------------------------------------------------------------
// Of 10 x instead of x the bits of all tell whether all are close: then none has an exponent of 2
// or more. That takes half an instruction for each, and maxima one at half the rate.

#define CAP_FOLD 10.0f

// products to CAP_FOLD times their product with the factor, and the reach of the warp's.
template <int COUNT>
__device__ __forceinline__ enum cap_reach cap_enlarge(float (&products)[COUNT], float factor)
{
    const float enlarged = factor * CAP_FOLD;
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        products[i] *= enlarged;
#pragma unroll
    for (int i = 0; i < COUNT; i += 2)
        bits |= __float_as_uint(products[i]) | __float_as_uint(products[i + 1]);
    if (__all_sync(0xffffffffu, (bits & 0x7fffffff) < __float_as_uint(2)))
        return CAP_CLOSE;
    return cap_reach_of(products, 1 / CAP_FOLD);
}

// tanh(y / CAP_FOLD) within the reach.
template <enum cap_reach REACH> __device__ __forceinline__ float cap_tanh_enlarged(float y)
{
    constexpr float F = CAP_FOLD, F2 = F * F;
    const float close[] = {CAP_CLOSE_SERIES}, near[] = {CAP_NEAR_SERIES};
    const float close_y[] = {close[0] / F, close[1] / (F * F2), close[2] / (F * F2 * F2)};
    const float near_y[] = {near[0] / F,
                            near[1] / (F * F2),
                            near[2] / (F * F2 * F2),
                            near[3] / (F * F2 * F2 * F2),
                            near[4] / (F * F2 * F2 * F2 * F2),
                            near[5] / (F * F2 * F2 * F2 * F2 * F2)};
    return y * (REACH == CAP_CLOSE ? cap_series(close_y, y * y) : cap_series(near_y, y * y));
}

// ---- any ----------------------------------------------------------------------------------------

// For any x, and the slope 1 - tanh^2 without its cancellation.
static __device__ __forceinline__ float cap_tanh_far(float x, float *slope)
{
    float e = fast_exp2(fabsf(x) * -2.885390081777927f), half = __fdividef(1, 1 + e);
    *slope = 4 * e * half * half;
    return fabsf(x) < 0.8f ? cap_tanh<CAP_NEAR>(x) : copysignf((1 - e) * half, x);
}

#endif
