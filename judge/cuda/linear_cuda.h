// SPDX-License-Identifier: Apache-2.0
// The judge of linear layers on a device: inputs are drawn there, the reference is computed there
// from elements that are drawn again wherever they are needed, and results are read from there.
#ifndef CPATTN_JUDGE_CUDA_LINEAR_CUDA_H
#define CPATTN_JUDGE_CUDA_LINEAR_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "judge/linear_view.h"

// fill() only puts work on the queue; the others wait for it.
extern const struct linear_tools linear_tools_cuda;

#ifdef __cplusplus
}
#endif

#endif
