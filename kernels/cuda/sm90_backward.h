// SPDX-License-Identifier: Apache-2.0
// Interface of the sm_90a backward kernels for the host part of backward (smxx_backward.cu).
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_H
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_H

#include "kernels/cuda/backward_work.cuh"
#include "kernels/cuda/internal.h"
#include "kernels/cuda/sm90_backward_instances.h"

// The sm_90a kernel for these arguments on this device. NULL: none; use a portable kernel.
const struct sm90_backward_kernel *sm90_backward_choose(const struct attention_backend *backend,
                                                        const struct attention_backward *args);

// Positions (rows / row_step) of the tensor maps on each side, as in struct sm90_extent.
struct sm90_backward_extent {
    int64_t q_positions, kv_positions;
};

// Permits the kernel its dynamic shared memory. Call once before its first launch.
cudaError_t sm90_backward_ready(const struct sm90_backward_kernel *kernel);

// Launches the kernel on the backend's stream. `params` holds work that was cut into the q_rows and
// kv_rows of the kernel. Errors are noted in the backend: cuda_note().
void sm90_backward_launch(struct attention_backend *backend, const struct attention_backward *args,
                          const struct sm90_backward_kernel *kernel,
                          const struct sm90_backward_extent *extent,
                          const struct backward_params *params);

#endif
