// SPDX-License-Identifier: Apache-2.0
// Time that passes on a stream, to see whether results depend on it.
#ifndef CPATTN_KERNELS_CUDA_DELAY_CUDA_H
#define CPATTN_KERNELS_CUDA_DELAY_CUDA_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Holds a stream of the current device up for that long, about. One block of one warp: what runs
// beside it is hardly slowed down.
cudaError_t delay_cuda(cudaStream_t stream, uint32_t ns);

#ifdef __cplusplus
}
#endif

#endif
