// SPDX-License-Identifier: Apache-2.0
// The instances of the backward kernels for sm_90a.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_INSTANCES_H
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_INSTANCES_H

#include <stdbool.h>
#include <stdint.h>

struct sm90_backward_params;

// One instantiation: how it wants the work to be cut, and what it needs.
struct sm90_backward_kernel {
    void (*run)(struct sm90_backward_params);
    int32_t q_rows, kv_rows;
    int32_t d;            // largest
    int32_t dq_rows;      // of what a warpgroup has of a block's dQ, 64 wide
    int32_t key_rows;     // of what leaves at a time of dK and dV, 32 wide
    int32_t bias_columns; // of a box of the bias; 0: it comes without boxes
    int32_t shared_bytes;
    bool begins_queries; // takes queries_begin
};

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

// The same with bias.
const struct sm90_backward_kernel *sm90_wide_biased_bf16(int d_qk, int d_v);
const struct sm90_backward_kernel *sm90_wide_biased_fp16(int d_qk, int d_v);

// By type, with bias and softcap, for head dimensions above SM90_GENERAL_ABOVE.
// dbias is added to in any order.
#define SM90_GENERAL_ABOVE 64
const struct sm90_backward_kernel *sm90_general_bf16(int d_qk, int d_v);
const struct sm90_backward_kernel *sm90_general_fp16(int d_qk, int d_v);

#endif
