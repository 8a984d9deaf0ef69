// SPDX-License-Identifier: Apache-2.0
// Copies of regions in several pieces (plan/plan.h) in device memory, and fills, with one launch
// for many regions.
#ifndef CPATTN_KERNELS_CUDA_REGIONS_CUDA_H
#define CPATTN_KERNELS_CUDA_REGIONS_CUDA_H

#include "kernels/cuda/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// `rows` pieces of `bytes` bytes, the strides apart on either side; a stride of `bytes` is memory
// without gaps. Nothing is copied if one of them is not positive. The sides do not overlap.
struct region_copy {
    const void *source;
    void *destination;
    int64_t rows, bytes;
    int64_t source_stride, destination_stride;
};

// Enqueues copies on a stream of the backend's device, without an order among them. The list is
// read before this returns. The backend stores errors.
void regions_cuda_copy(struct attention_backend *backend, cudaStream_t stream,
                       const struct region_copy *copies, int count);

// destination += source on the backend's stream: `rows` pieces of `count` floats, one behind the
// other in the source, `stride` floats apart in the destination.
void regions_cuda_add(struct attention_backend *backend, const float *source, float *destination,
                      int64_t rows, int64_t count, int64_t stride);

#define REGION_FILLS_MAX 8

// `count` floats; none if it is not positive.
struct region_fill {
    float *destination;
    int64_t count;
    float value;
};

// Enqueues up to REGION_FILLS_MAX fills on the backend's stream, without an order among them.
void regions_cuda_fill(struct attention_backend *backend, const struct region_fill *fills,
                       int count);

#ifdef __cplusplus
}
#endif

#endif
