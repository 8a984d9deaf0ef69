// SPDX-License-Identifier: Apache-2.0
// Polynomials for the tanh of a softcap where its argument is small. Kernels evaluate them on the
// FMA units, which have more time to spare than the special function units.
#ifndef CPATTN_KERNELS_CUDA_CAP_SERIES_H
#define CPATTN_KERNELS_CUDA_CAP_SERIES_H

// tanh(x) / x for |x| <= CAP_NEAR_REACH, as a series in x^2, with a relative error of 2e-7.
#define CAP_NEAR_REACH 0.8f
#define CAP_NEAR_SERIES                                                                            \
    0.99999994f, -0.333326757f, 0.133210480f, -0.0531143174f, 0.0190933011f, -0.00435529975f

#ifdef __cplusplus
extern "C" {
#endif

// cap * tanh(factor * x) is x times a series in x^2; the smaller |x|, the shorter the series. For
// |x| <= reach[0] the slope of the tanh is 1 + x^2 * (close_slope[0] + close_slope[1] * x^2).
struct cap_series {
    float close[2], middle[3], near[6];
    float reach[3]; // largest |x| of each series; -1: fp32 cannot hold its terms
    float close_slope[2];
};

// Sets the series for `cap` in base 2 (softcap * log2(e)). Within their reach, the errors of
// `close` and `middle` are below the tolerance that a verdict has for LSE.
void cap_series_set(float factor, float cap, struct cap_series *series);

#ifdef __cplusplus
}
#endif

#endif
