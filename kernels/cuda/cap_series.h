// SPDX-License-Identifier: Apache-2.0
// The tanh of a softcap where its argument is small, as polynomials: kernels evaluate them on units
// that have more time than those for exponentials.
#ifndef CPATTN_KERNELS_CUDA_CAP_SERIES_H
#define CPATTN_KERNELS_CUDA_CAP_SERIES_H

// tanh(x) / x for |x| <= CAP_NEAR_REACH, as a series in x^2, with a relative error of 2e-7.
#define CAP_NEAR_REACH 0.8f
#define CAP_NEAR_SERIES                                                                            \
    0.99999994f, -0.333326757f, 0.133210480f, -0.0531143174f, 0.0190933011f, -0.00435529975f

#ifdef __cplusplus
extern "C" {
#endif

// cap * tanh(factor * x) is x times a series in x^2, the shorter the smaller x is. Up to reach[0]
// the slope of the tanh is 1 plus x^2 times `close_slope`, which is a series in x^2, too.
struct cap_series {
    float close[2], middle[3], near[6];
    float reach[3]; // largest |x| of each; -1: fp32 cannot hold its terms
    float close_slope[2];
};

// `cap` is in base 2. Where the two short series reach they are off by less than what a verdict
// admits to LSE.
void cap_series_set(float factor, float cap, struct cap_series *series);

#ifdef __cplusplus
}
#endif

#endif
