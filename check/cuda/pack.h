// SPDX-License-Identifier: Apache-2.0
// Copies elements between arrays with any strides and the dense layout of the judge.
#ifndef CPATTN_CHECK_CUDA_PACK_H
#define CPATTN_CHECK_CUDA_PACK_H

#include "common/cuda/queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#include <stdint.h>

// rows x heads x dim elements, all strides in elements. Both arrays are device memory.
struct pack {
    void *array;            // the caller's
    const int64_t *offsets; // [rows], device memory: offset of head 0 of a row in the array; -1:
                            // the array has no such row, and it is not copied
    int64_t head_stride;
    void *dense;
    int64_t dense_row, dense_head; // strides of rows and heads in `dense`
    int64_t rows;
    int heads, dim;
    size_t element_bytes; // 2 or 4
};

// Copies from the array to `dense`, or back, on the queue's stream. The queue stores errors.
void pack_read(struct cuda_queue *queue, const struct pack *pack);
void pack_write(struct cuda_queue *queue, const struct pack *pack);

#ifdef __cplusplus
}
#endif

#endif
