// SPDX-License-Identifier: Apache-2.0
// Reductions of collectives on a device; see struct backend_ops.
#ifndef CPATTN_KERNELS_CUDA_REDUCE_CUDA_H
#define CPATTN_KERNELS_CUDA_REDUCE_CUDA_H

#include <stdint.h>

#include "plan/element.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attention_backend;

void reduce_cuda(struct attention_backend *backend, enum collective_element element,
                 enum collective_reduction reduction, const void *source, void *destination,
                 int64_t count);
void divide_cuda(struct attention_backend *backend, enum collective_element element, int divisor,
                 void *destination, int64_t count);

#ifdef __cplusplus
}
#endif

#endif
