// SPDX-License-Identifier: Apache-2.0
// Products on a device: by cuBLASLt, which is loaded when the first is asked for, and by a kernel
// of our own for what it does not take or where there is none.
#ifndef CPATTN_KERNELS_CUDA_CUBLASLT_H
#define CPATTN_KERNELS_CUDA_CUBLASLT_H

#include "kernels/gemm.h"

extern const struct gemm_provider *const cuda_gemm_providers[];

// Frees what products of the process have left: a rank has one backend. Nothing of it is under way.
void cublaslt_release(void);

#endif
