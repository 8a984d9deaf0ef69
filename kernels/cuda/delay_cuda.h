// SPDX-License-Identifier: Apache-2.0
// Delays of a stream, for tests that results do not depend on timing.
#ifndef CPATTN_KERNELS_CUDA_DELAY_CUDA_H
#define CPATTN_KERNELS_CUDA_DELAY_CUDA_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Delays a stream of the current device by about this time. One block of one warp, so that
// concurrent work is hardly slowed down.
cudaError_t delay_cuda(cudaStream_t stream, uint32_t ns);

#ifdef __cplusplus
}
#endif

#endif
