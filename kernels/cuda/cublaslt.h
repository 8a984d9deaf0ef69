// SPDX-License-Identifier: Apache-2.0
// Products on a device: by cuBLASLt, which is loaded at the first product, and by a kernel of the
// project if cuBLASLt is missing or does not support the product.
#ifndef CPATTN_KERNELS_CUDA_CUBLASLT_H
#define CPATTN_KERNELS_CUDA_CUBLASLT_H

#include "kernels/gemm.h"

extern const struct gemm_provider *const cuda_gemm_providers[];

// Frees the state of products of the process, which has one backend. No product may be in progress.
void cublaslt_release(void);

#endif
