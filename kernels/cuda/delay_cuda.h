// SPDX-License-Identifier: Apache-2.0
// Artificial delays on a stream, to test that results do not depend on timing.
#ifndef CPATTN_KERNELS_CUDA_DELAY_CUDA_H
#define CPATTN_KERNELS_CUDA_DELAY_CUDA_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Enqueues a delay of about `ns` nanoseconds on a stream of the current device. Its kernel has one
// block of one warp, so it hardly slows down concurrent work.
cudaError_t delay_cuda(cudaStream_t stream, uint32_t ns);

#ifdef __cplusplus
}
#endif

#endif
