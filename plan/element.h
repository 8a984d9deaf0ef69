// SPDX-License-Identifier: Apache-2.0
// Elements of collectives, and how they are reduced. Plain enough for a CUDA compiler.
#ifndef CPATTN_PLAN_ELEMENT_H
#define CPATTN_PLAN_ELEMENT_H

// Integers: sums and products wrap around. An average is the sum divided by P, rounded towards
// zero.
enum collective_reduction {
    REDUCTION_SUM = 1,
    REDUCTION_PROD,
    REDUCTION_MIN,
    REDUCTION_MAX,
    REDUCTION_AVG,
    REDUCTIONS
};

enum collective_element {
    ELEMENT_FP32 = 1,
    ELEMENT_FP16,
    ELEMENT_BF16,
    ELEMENT_INT32,
    ELEMENT_INT64,
    ELEMENT_UINT8,
    ELEMENTS
};

#endif
