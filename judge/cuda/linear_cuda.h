// SPDX-License-Identifier: Apache-2.0
// The judge of linear layers in device memory. It draws the inputs, draws their elements again to
// compute the reference, and reads the results.
#ifndef CPATTN_JUDGE_CUDA_LINEAR_CUDA_H
#define CPATTN_JUDGE_CUDA_LINEAR_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "judge/linear_view.h"

// fill() only enqueues work; the other functions wait for the queue.
extern const struct linear_tools linear_tools_cuda;

#ifdef __cplusplus
}
#endif

#endif
