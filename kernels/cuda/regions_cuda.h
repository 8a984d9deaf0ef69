// SPDX-License-Identifier: Apache-2.0
// Copies and fills of regions (plan/plan.h) in device memory. One launch handles many regions.
#ifndef CPATTN_KERNELS_CUDA_REGIONS_CUDA_H
#define CPATTN_KERNELS_CUDA_REGIONS_CUDA_H

#include "kernels/cuda/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// Copies `rows` pieces of `bytes` bytes; nothing, if either is not positive. Strides are bytes
// between the starts of pieces; a stride of `bytes` leaves no gaps. Source and destination do not
// overlap.
struct region_copy {
    const void *source;
    void *destination;
    int64_t rows, bytes;
    int64_t source_stride, destination_stride;
};

// Enqueues copies on a stream of the backend's device. They may run in any order. The list is read
// before the call returns. The backend stores errors.
void regions_cuda_copy(struct attention_backend *backend, cudaStream_t stream,
                       const struct region_copy *copies, int count);

// destination += source, on the backend's stream, for `rows` pieces of `count` floats. Pieces are
// contiguous in the source and `stride` floats apart in the destination.
void regions_cuda_add(struct attention_backend *backend, const float *source, float *destination,
                      int64_t rows, int64_t count, int64_t stride);

#define REGION_FILLS_MAX 8

// Sets `count` floats to `value`; nothing, if count is not positive.
struct region_fill {
    float *destination;
    int64_t count;
    float value;
};

// Enqueues up to REGION_FILLS_MAX fills on the backend's stream. They may run in any order.
void regions_cuda_fill(struct attention_backend *backend, const struct region_fill *fills,
                       int count);

#ifdef __cplusplus
}
#endif

#endif
