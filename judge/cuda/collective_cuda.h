// SPDX-License-Identifier: Apache-2.0
// The judge of collectives in device memory. It draws and compares every element on the device and
// copies only tallies to the host.
#ifndef CPATTN_JUDGE_CUDA_COLLECTIVE_CUDA_H
#define CPATTN_JUDGE_CUDA_COLLECTIVE_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "judge/collective.h"

// All functions wait for the stream, except set() and fill().
extern const struct collective_judge collective_judge_cuda;

#ifdef __cplusplus
}
#endif

#endif
