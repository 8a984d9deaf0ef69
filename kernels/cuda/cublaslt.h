// SPDX-License-Identifier: Apache-2.0
// Matrix products on a device. cuBLASLt computes them; it is loaded at the first product. If it is
// missing or does not support a product, a kernel of the project computes the product.
#ifndef CPATTN_KERNELS_CUDA_CUBLASLT_H
#define CPATTN_KERNELS_CUDA_CUBLASLT_H

#include "kernels/gemm.h"

// In the order in which they are tried. Ends with NULL.
extern const struct gemm_provider *const cuda_gemm_providers[];

// Unloads cuBLASLt and frees its cached products. This state is global, because a process has one
// backend. No product may be in progress.
void cublaslt_release(void);

#endif
