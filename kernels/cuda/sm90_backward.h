// SPDX-License-Identifier: Apache-2.0
// The backward kernels for sm_90a, to the host's part of backward (smxx_backward.cu).
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_H
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_H

#include "kernels/cuda/backward_work.cuh"
#include "kernels/cuda/internal.h"
#include "kernels/cuda/sm90_backward_instances.h"

// The kernel for these arguments on this device; NULL: there is none, and any other serves.
const struct sm90_backward_kernel *sm90_backward_choose(const struct attention_backend *backend,
                                                        const struct attention_backward *args);

// Rows of the slices on both sides, as in struct sm90_extent.
struct sm90_backward_extent {
    int64_t q_positions, kv_positions;
};

// Lets the kernel have its shared memory: once before its first launch.
cudaError_t sm90_backward_ready(const struct sm90_backward_kernel *kernel);

// Puts it on the stream, for work that was cut as the kernel wants it. Errors are remembered.
void sm90_backward_launch(struct attention_backend *backend, const struct attention_backward *args,
                          const struct sm90_backward_kernel *kernel,
                          const struct sm90_backward_extent *extent,
                          const struct backward_params *params);

#endif
