// SPDX-License-Identifier: Apache-2.0
// Times and marks that a kernel writes. A graph launches kernels at no cost to the host; it
// launches events and words of streams one by one.
#ifndef CPATTN_KERNELS_CUDA_STAMP_CUDA_H
#define CPATTN_KERNELS_CUDA_STAMP_CUDA_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Writes the device's clock in nanoseconds to `time`, and `value` to `mark`, when the stream gets
// there. Either may be NULL; both are addresses of the device.
cudaError_t stamp_cuda(cudaStream_t stream, uint64_t *time, uint32_t *mark, uint32_t value);

#ifdef __cplusplus
}
#endif

#endif
