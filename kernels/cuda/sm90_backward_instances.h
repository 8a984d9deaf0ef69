// SPDX-License-Identifier: Apache-2.0
// The instances of the backward kernels for sm_90a.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_INSTANCES_H
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_INSTANCES_H

#include <stdbool.h>
#include <stdint.h>

struct sm90_backward_params;

// One instantiation of a kernel: the sizes into which its work must be cut, and what it needs.
struct sm90_backward_kernel {
    void (*run)(struct sm90_backward_params);
    int32_t q_rows, kv_rows; // queries of a block, keys of a tile
    int32_t d;               // largest head dimension
    int32_t dq_rows;         // rows of a TMA box of dQ, 32 elements wide
    int32_t key_rows;        // rows of a TMA box of dK and dV, 32 elements wide
    int32_t bias_columns;    // columns of a TMA box of the bias; 0: the bias is loaded without TMA
    int32_t shared_bytes;
    bool begins_queries; // supports queries_begin
};

// For head dimensions up to SM90_BACKWARD_NARROW. d: the larger of d_qk and d_v. ordered:
// deterministic.
#define SM90_BACKWARD_NARROW 128
const struct sm90_backward_kernel *sm90_backward_bf16(int d, bool ordered);
const struct sm90_backward_kernel *sm90_backward_fp16(int d, bool ordered);

// As above, with softcap.
const struct sm90_backward_kernel *sm90_capped_bf16(int d, bool ordered);
const struct sm90_backward_kernel *sm90_capped_fp16(int d, bool ordered);

// As above, with bias.
const struct sm90_backward_kernel *sm90_biased_bf16(int d, bool ordered);
const struct sm90_backward_kernel *sm90_biased_fp16(int d, bool ordered);

// For head dimensions above SM90_BACKWARD_NARROW. Deterministic if the parameters have turns.
const struct sm90_backward_kernel *sm90_wide_bf16(int d_qk, int d_v);
const struct sm90_backward_kernel *sm90_wide_fp16(int d_qk, int d_v);

// As above, with softcap.
const struct sm90_backward_kernel *sm90_wide_capped_bf16(int d_qk, int d_v);
const struct sm90_backward_kernel *sm90_wide_capped_fp16(int d_qk, int d_v);

// As above, with bias.
const struct sm90_backward_kernel *sm90_wide_biased_bf16(int d_qk, int d_v);
const struct sm90_backward_kernel *sm90_wide_biased_fp16(int d_qk, int d_v);

// With bias and softcap, for head dimensions above SM90_GENERAL_ABOVE. Additions to dbias are not
// ordered.
#define SM90_GENERAL_ABOVE 64
const struct sm90_backward_kernel *sm90_general_bf16(int d_qk, int d_v);
const struct sm90_backward_kernel *sm90_general_fp16(int d_qk, int d_v);

#endif
