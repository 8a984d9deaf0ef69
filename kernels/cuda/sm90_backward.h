// SPDX-License-Identifier: Apache-2.0
// The backward kernels for sm_90a, to the host's part of backward (smxx_backward.cu).
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_H
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_H

#include "kernels/cuda/internal.h"
#include "kernels/cuda/smxx_backward.cuh"

struct sm90_backward_params;

// One instantiation: how it wants the work to be cut, and what it needs.
struct sm90_backward_kernel {
    void (*run)(struct sm90_backward_params);
    int32_t q_rows, kv_rows;
    int32_t d;        // largest
    int32_t dq_rows;  // of what a warpgroup has of a block's dQ, 64 wide
    int32_t key_rows; // of what leaves at a time of dK and dV, 32 wide
    int32_t shared_bytes;
};

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

// By type, for head dimensions up to SM90_BACKWARD_NARROW, of which d is the larger; ordered: with
// the same bits in every run.
#define SM90_BACKWARD_NARROW 128
const struct sm90_backward_kernel *sm90_backward_bf16(int d, bool ordered);
const struct sm90_backward_kernel *sm90_backward_fp16(int d, bool ordered);

// The same with softcap.
const struct sm90_backward_kernel *sm90_capped_bf16(int d, bool ordered);
const struct sm90_backward_kernel *sm90_capped_fp16(int d, bool ordered);

// The same with bias.
const struct sm90_backward_kernel *sm90_biased_bf16(int d, bool ordered);
const struct sm90_backward_kernel *sm90_biased_fp16(int d, bool ordered);

// By type, for those above; with turns they give the same bits in every run.
const struct sm90_backward_kernel *sm90_wide_bf16(int d_qk, int d_v);
const struct sm90_backward_kernel *sm90_wide_fp16(int d_qk, int d_v);

// The same with softcap.
const struct sm90_backward_kernel *sm90_wide_capped_bf16(int d_qk, int d_v);
const struct sm90_backward_kernel *sm90_wide_capped_fp16(int d_qk, int d_v);

// By type, with bias, and softcap where there is one, for head dimensions above SM90_GENERAL_ABOVE.
// dbias is added to in any order.
#define SM90_GENERAL_ABOVE 64
const struct sm90_backward_kernel *sm90_general_bf16(int d_qk, int d_v);
const struct sm90_backward_kernel *sm90_general_fp16(int d_qk, int d_v);

#endif
