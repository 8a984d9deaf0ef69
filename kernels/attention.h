// SPDX-License-Identifier: Apache-2.0
// Arguments of attention operations. kernels/provider.h is the interface of their kernels;
// kernels/backend.h has the other operations of a backend.
//
// Layouts (C order): Q, O, dO, dQ [rows][heads][d]; K, V, dK, dV [rows][kv_heads][d]; LSE, D
// [heads][q_rows]. d is d_qk for Q and K, d_v for V and O. D is the sum over d_v of dO * O. Inputs
// are in the case's dtype, accumulators (O, LSE, dQ, dK, dV) in fp32. Query head h uses key head
// (h + head_phase) / group. The caller owns the memory; a backend owns only its scratch.
#ifndef CPATTN_KERNELS_ATTENTION_H
#define CPATTN_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"
#include "common/status.h"
#include "plan/dtype.h"
#include "plan/slice.h"

struct attention_shape {
    enum case_dtype dtype;
    int32_t heads, kv_heads, d_qk, d_v;
    int32_t group;      // query heads that share a key head
    int32_t head_phase; // place of the first query head in its group, 0..group-1
    int64_t q_rows;     // stride of LSE and D between heads
    int64_t row_step;   // rows between consecutive queries or keys of a slice
    double scale;
    double softcap; // logit = softcap * tanh(scale * qk / softcap); 0: logit = scale * qk
    // Index of the bias of query head h, query i and key j of a slice, which is added to the logit:
    //     h * bias_head_stride + (bias_row + i * bias_row_step) * bias_row_stride + bias_column + j
    // Head stride 0: all heads share the bias. Row step 0: all queries of a slice share a row.
    int64_t bias_head_stride, bias_row_stride, bias_row_step;
    // The rectangles (heads, queries, keys) of all slices of all launches with one dbias do not
    // overlap in dbias, and dbias is 0 before the first launch. A backend may then store dS instead
    // of adding it, and store 0 where the mask hides a key. Forward and backward then read each
    // bias element once, so it need not stay in a cache.
    bool dbias_once;
    bool deterministic; // the same bits in every run; false allows faster kernels
};

// Neighbouring operations that a forward does in its own launch: the fill of O and LSE before it,
// and the conversion of O after it. All 0: none. Other values only for a prepared operation with
// op_needs.folds. Rows of the slices that see no key may be left as they are.
struct attention_fold {
    bool begins;     // O is uninitialised and counts as 0
    bool lse_begins; // with `begins`: LSE is uninitialised, too, and counts as lse_begin
    float lse_begin; // below +inf
    void *out;       // dtype, layout of O: O after the merge, rounded to nearest even; NULL: none
    bool out_only;   // with `out`: the fp32 O need not be written
};

struct attention_forward {
    struct attention_shape shape;
    const void *q, *k, *v;
    // Running result: O is normalised, LSE is a natural logarithm. Before the first merge O is 0
    // and LSE is -inf, or the logit of a sink, which has no value vector. With L0 = LSE before, and
    // l, o = LSE and output of this operation, the merge in fp32 is
    //     L = log(e^L0 + e^l), O = e^(L0-L) O + e^(l-L) o.
    // A row that sees no key keeps its O and LSE. O begins at a multiple of 8 bytes if d_v is even.
    float *o, *lse;
    struct attention_fold fold;
    const void *bias; // dtype; NULL: none
    float *max_logit; // [heads]: raised to the largest visible logit; NULL: not wanted
    const struct slice *slices;
    int32_t slice_count;
};

struct attention_backward {
    struct attention_shape shape;
    const void *q, *k, *v, *d_out;
    const float *lse, *d; // of the complete forward; rows with LSE = -inf contribute nothing
    const float *o;       // of the complete forward, [q_rows][heads][d_v]; NULL: use D
    // With P = exp(logit - LSE) and dS = P (dO V' - D): dV += P' dO, dbias += dS. A softcap then
    // multiplies dS by the derivative of tanh. Last, dQ += scale dS K, dK += scale dS' Q.
    float *dq, *dk, *dv;
    // dQ (queries_begin), or dK and dV (keys_begin), are uninitialised and count as 0. Rows of
    // queries that see no key, and of keys that no query sees, may be left as they are.
    // queries_begin needs a prepared operation with op_needs.begins_queries, keys_begin one with
    // op_needs.folds.
    bool queries_begin, keys_begin;
    // dK and dV after the addition, in dtype, rounded to nearest even, with the layouts of dK and
    // dV. The fp32 dK and dV need not be written then. Rows of keys that no query sees may be left
    // as they are. NULL: not wanted. Only for a prepared operation with op_needs.folds.
    void *dk_out, *dv_out;
    const void *bias; // as in forward
    float *dbias;     // layout of the bias; NULL: not wanted
    const struct slice *slices;
    int32_t slice_count;
};

struct attention_backend; // stream and scratch of a backend; each thread needs its own

#endif
