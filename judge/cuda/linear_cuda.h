// SPDX-License-Identifier: Apache-2.0
// The judge of linear layers on a device: draws inputs, computes the reference from elements that
// it draws again, and reads results there.
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
