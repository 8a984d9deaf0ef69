// SPDX-License-Identifier: Apache-2.0
// The element types of inputs and results, for kernels, which know nothing else of a case.
#ifndef CPATTN_PLAN_DTYPE_H
#define CPATTN_PLAN_DTYPE_H

// 0 means unspecified, as in every enum of a case.
enum case_dtype { DTYPE_BF16 = 1, DTYPE_FP16, DTYPE_FP32 };

#endif
