// SPDX-License-Identifier: Apache-2.0
// Linear layers on a device; see struct backend_ops.
#ifndef CPATTN_KERNELS_CUDA_LINEAR_CUDA_H
#define CPATTN_KERNELS_CUDA_LINEAR_CUDA_H

#include "kernels/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

void activate_cuda(struct attention_backend *backend, enum case_dtype dtype,
                   const struct product *shape, const void *h, void *to);
void activate_backward_cuda(struct attention_backend *backend, enum case_dtype dtype,
                            const struct product *shape, const void *h, const void *d, void *to);
void column_sum_cuda(struct attention_backend *backend, enum case_dtype dtype,
                     const struct product *shape, const void *source, void *destination);
void sum_parts_cuda(struct attention_backend *backend, enum case_dtype dtype,
                    const struct product *shape, int own_rank, const void *parts, const void *own,
                    const void *bias, void *destination);

// c = wide + bias, rounded to the dtype once. `wide` is a product [m][n] in fp32; bias [n] and
// c [m][n] are in the dtype.
void bias_round_cuda(struct attention_backend *backend, enum case_dtype dtype, int64_t m, int64_t n,
                     const float *wide, const void *bias, void *c);

// A matrix product without a library. Supports any sizes and alignments; one thread per element.
void product_cuda(struct attention_backend *backend, const struct gemm *g);

#ifdef __cplusplus
}
#endif

#endif
