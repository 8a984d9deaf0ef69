// SPDX-License-Identifier: Apache-2.0
// Attention kernels for cpattnd as a shared object. cpattnd plans the work and moves keys, values
// and gradients between ranks. A provider computes rectangles of the attention matrix on one rank.
// cpattnd verifies the result.
//
//     cpattnd --provider mine=/usr/lib/cpattn/mine.so
//     cpattn-submit case --provider mine
//
// The object exports cpattn_provider(). The daemon tries open() and close() at its start, in a
// separate process. Each rank process loads the object when the first case names it, and uses it
// from one thread. A provider needs no library of cpattnd, and may be written in any language that
// can export a C table. tests/providers/toy.c is an example.
//
// Computation. An operation has up to some thousands of rectangles of the attention matrix. In
// each, query i (0 <= i < q_len) sees key j (0 <= j < kv_len) if
//     (band_left < 0 or i - j <= band_left) and (band_right < 0 or j - i <= band_right);
// each query sees at least one key. Causal is band_right 0. With
//     logit(i, j) = scale * (q_i . k_j), then softcap * tanh(logit / softcap) if softcap is not 0,
//     then + bias(i, j) if there is one,
// over the keys of its rectangle a query has
//     lse_i = log sum_j exp(logit), p_ij = exp(logit - lse_i), o_i = sum_j p_ij v_j.
// Backward gets lse_i and delta_i of the complete row; the rectangle may be a part of the row:
//     p_ij = exp(logit - lse_i), dp_ij = do_i . v_j, ds_ij = p_ij (dp_ij - delta_i),
//     delta_i = sum over d of do_i * o_i,
//     dv_j = sum_i p_ij do_i, dbias_ij = ds_ij, then ds_ij times the slope of the softcap,
//     dq_i = scale * sum_j ds_ij k_j, dk_j = scale * sum_i ds_ij q_i.
// cpattnd handles sinks, and everything that involves several ranks.
//
// Layout. Tensors are row-major: Q, dO [rows][heads][d], K, V [rows][kv_heads][d]. Query i of a
// rectangle is row q_row + i * row_step of Q and dO; key j is row kv_row + j * row_step of K and V.
// Query head h uses key head (h + head_phase) / group. Rows outside of all rectangles may hold any
// value. Rectangles of one operation share neither queries nor keys.
//
// Memory. A provider writes its results and its workspace only. cpattnd compares the inputs of the
// rank, and the bytes around the running results, after the run; a change fails the case. In host
// memory it also compares the bytes around packed results and workspace, after each call.
//
// Results. A provider without CPATTN_PROVIDER_MERGES writes packed results: query i of a rectangle
// is row q_packed + i of O [q_packed_rows][heads][d_v] (also of O as input of backward) and of dQ;
// key j is row kv_packed + j of dK and dV. cpattnd merges them. A provider with
// CPATTN_PROVIDER_MERGES updates running results in fp32, with the rows of Q and K:
//     lse' = log(exp(lse) + exp(lse_i)), o' = exp(lse - lse') o + exp(lse_i - lse') o_i,
// where lse is -infinity for a row that has seen no key, and adds to dQ, dK and dV.
#ifndef CPATTN_PROVIDER_H
#define CPATTN_PROVIDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Version of this header. A table with another version is refused.
#define CPATTN_PROVIDER_VERSION 1

enum cpattn_provider_dtype { CPATTN_BF16 = 1, CPATTN_FP16 = 2, CPATTN_FP32 = 3 };

// Memory of the tensors: the process, or the current CUDA device.
enum cpattn_provider_memory { CPATTN_MEMORY_HOST = 1, CPATTN_MEMORY_CUDA = 2 };

enum cpattn_provider_flags {
    CPATTN_PROVIDER_MERGES = 1, // updates running results, see above
};

// Return values of the functions. On failure they write a sentence without a final stop to
// `reason`.
enum cpattn_provider_status {
    CPATTN_PROVIDER_OK = 0,
    CPATTN_PROVIDER_UNSUPPORTED = 1, // supports() and prepare() only: the case is refused, or with
                                     // provider_fallback cpattnd computes the operation
    CPATTN_PROVIDER_NO_MEMORY = 2,
    CPATTN_PROVIDER_FAILED = 3, // the case fails, and the ranks are started again
};

struct cpattn_rectangle {
    int64_t q_row, q_len, kv_row, kv_len;
    int64_t q_packed, kv_packed;
    int64_t bias; // index of the bias element of head 0, query 0 and key 0
};

// An operation. The caller owns the memory and keeps it until discard(). Members beyond `size`
// bytes do not exist in the caller's version.
struct cpattn_attention {
    uint64_t size;
    int32_t backward; // 0: forward
    int32_t dtype;    // of Q, K, V, dO and bias
    int32_t heads, kv_heads, group, head_phase;
    int32_t head_dim_qk, head_dim_v;
    int32_t deterministic; // every run must give the same bits
    // All rectangles have the same q_len and kv_len. Rectangle n begins n * q_row_stride and n *
    // kv_row_stride rows after rectangle 0. The distance of their biases is constant, too.
    int32_t dense;
    double scale, softcap;
    int64_t band_left, band_right;
    int64_t row_step;
    int64_t q_row_stride, kv_row_stride;
    int64_t q_rows; // rows of Q; with CPATTN_PROVIDER_MERGES LSE and delta are [heads][q_rows]
    int64_t q_packed_rows, kv_packed_rows;
    // Index of the bias element of head h, query i and key j of a rectangle:
    //     bias + h * bias_head_stride + i * bias_row_stride + j
    // Stride 0: a broadcast dimension.
    int64_t bias_head_stride, bias_row_stride;
    int32_t has_bias, wants_dbias, wants_max_logit;
    int32_t rectangle_count;
    const struct cpattn_rectangle *rectangles;
};

// Layout of LSE and delta of packed rows.
enum cpattn_lse_layout {
    CPATTN_LSE_BY_RECTANGLE = 0, // [heads][q_len] per rectangle, from element q_packed * heads
    CPATTN_LSE_BY_ROW = 1,       // [q_packed_rows][heads]
};

// Filled by prepare(). The caller clears it first.
struct cpattn_prepared {
    uint64_t size;
    void *state; // passed to forward(), backward() and discard()
    int64_t workspace_bytes;
    int32_t result_dtype; // of packed O, dQ, dK, dV: the operation's dtype (also 0) or CPATTN_FP32
    int32_t lse_layout;
    int32_t wants_out, wants_delta; // backward reads O; backward reads delta
};

// Tensors are aligned to 16 bytes if their rows are multiples of 16 bytes; `workspace` to 256
// bytes. With CPATTN_MEMORY_CUDA `stream` is a cudaStream_t; a call only enqueues work on it.
struct cpattn_forward {
    uint64_t size;
    const void *q, *k, *v, *bias;
    void *o;
    float *lse;
    float *max_logit; // [heads]: raise it to the largest visible logit; NULL: not wanted
    void *workspace, *stream;
};

struct cpattn_backward {
    uint64_t size;
    const void *q, *k, *v, *bias, *d_out;
    const void *o; // of the complete row; packed: in the dtype of the operation
    const float *lse, *delta;
    void *dq, *dk, *dv;
    float *dbias; // layout of the bias; add to it; NULL: not wanted
    void *workspace, *stream;
};

struct cpattn_provider {
    uint64_t size;
    uint32_t version; // CPATTN_PROVIDER_VERSION
    uint32_t memory;  // enum cpattn_provider_memory
    uint32_t flags;
    const char *about; // for people, such as "cuDNN 9.19.0"
    // Called once per process, first; with CUDA the device is current. May be NULL.
    int (*open)(void **state, char *reason, uint64_t reason_size);
    void (*close)(void *state); // may be NULL
    // Tells whether the provider supports the operation. Called for each operation of a plan, so
    // keep it fast.
    int (*supports)(void *state, const struct cpattn_attention *attention, char *reason,
                    uint64_t reason_size);
    // Called once for each operation, before the case begins. May be NULL.
    int (*prepare)(void *state, const struct cpattn_attention *attention,
                   struct cpattn_prepared *prepared, char *reason, uint64_t reason_size);
    void (*discard)(void *state, void *prepared); // may be NULL
    int (*forward)(void *state, void *prepared, const struct cpattn_attention *attention,
                   const struct cpattn_forward *args, char *reason, uint64_t reason_size);
    // NULL: forward only.
    int (*backward)(void *state, void *prepared, const struct cpattn_attention *attention,
                    const struct cpattn_backward *args, char *reason, uint64_t reason_size);
};

// The function that a shared object exports. The table must stay valid.
#define CPATTN_PROVIDER_SYMBOL "cpattn_provider"
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct cpattn_provider *
cpattn_provider(void);

#ifdef __cplusplus
}
#endif

#endif
