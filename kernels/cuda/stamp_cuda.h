// SPDX-License-Identifier: Apache-2.0
// Timestamps and progress marks, written by a kernel. A kernel node of a CUDA graph costs the host
// nothing; event nodes and stream memory operations are launched one by one.
#ifndef CPATTN_KERNELS_CUDA_STAMP_CUDA_H
#define CPATTN_KERNELS_CUDA_STAMP_CUDA_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Enqueues a kernel that writes the device's clock in nanoseconds to `time`, and `value` to
// `mark`. Either may be NULL; both are device addresses.
cudaError_t stamp_cuda(cudaStream_t stream, uint64_t *time, uint32_t *mark, uint32_t value);

#ifdef __cplusplus
}
#endif

#endif
