// SPDX-License-Identifier: Apache-2.0
// Arguments of attention operations. kernels/provider.h is the interface of their kernels;
// kernels/backend.h has the other operations of a backend.
//
// Layouts (C order): Q, dO-like [rows][heads][d]; K, V-like [rows][kv_heads][d]; LSE, D
// [heads][q_rows]. Inputs are in the case's dtype, accumulators (O, LSE, dQ, dK, dV) in fp32. Query
// head h uses key head (h + head_phase) / group. The caller owns the memory; a backend owns only
// its scratch.
#ifndef CPATTN_KERNELS_ATTENTION_H
#define CPATTN_KERNELS_ATTENTION_H

#include "plan/case.h"
#include "plan/slice.h"

struct attention_shape {
    enum case_dtype dtype;
    int32_t heads, kv_heads, d_qk, d_v;
    int32_t group;      // query heads that share a key head
    int32_t head_phase; // of the first query head in its group, 0..group-1
    int64_t q_rows;     // stride of LSE and D between heads
    int64_t row_step;   // of the slices
    double scale;
    double softcap; // logit = softcap * tanh(scale * qk / softcap); 0: logit = scale * qk
    // Bias of query head h, query i and key j of a slice, added to the logit: bias[h *
    // bias_head_stride + (bias_row + i * bias_row_step) * bias_row_stride + bias_column + j]; a
    // head stride or row step of 0: one for all.
    int64_t bias_head_stride, bias_row_stride, bias_row_step;
    // The rectangles of queries and keys that all slices of all launches with one dbias have in it
    // do not overlap, heads included, and it is 0 before the first. A backend may then write there
    // instead of adding, 0 where a query does not see a key. Each element of the bias is read once
    // then, in forward, too, so it need not stay in a cache.
    bool dbias_once;
    bool deterministic; // the same bits in every run; a backend may be faster without
};

// What a forward does beside the merge, in the same launch. All 0: nothing. Only a prepared
// operation that says so (struct op_needs) may be given more. Rows of the slices that see no key
// may be left as they are.
struct attention_fold {
    bool begins;     // O has no value before and counts as 0
    bool lse_begins; // with `begins`: LSE has no value before either and counts as lse_begin
    float lse_begin; // below +inf
    void *out;     // dtype, layout of O: gets O after the merge, to nearest even; NULL: not wanted
    bool out_only; // with `out`: O need not be written
};

struct attention_forward {
    struct attention_shape shape;
    const void *q, *k, *v;
    // Running result: O normalised, LSE natural logarithm. Start with O = 0, LSE = -inf, or with
    // LSE = the logit of a sink, which has no value. A row that sees nothing is left as it is.
    // Merge in fp32 with what was there (L0): L = log(e^L0 + e^l), O = e^(L0-L) O + e^(l-L) o.
    float *o, *lse;
    struct attention_fold fold;
    const void *bias; // dtype; NULL: none
    float *max_logit; // [heads]: is raised to the largest visible logit; NULL: not wanted
    const struct slice *slices;
    int32_t slice_count;
};

struct attention_backward {
    struct attention_shape shape;
    const void *q, *k, *v, *d_out;
    const float *lse, *d; // of the complete forward; rows with LSE = -inf contribute nothing
    const float *o;       // of the complete forward, [q_rows][heads][d_v]; NULL: only D is given
    // P = exp(logit - LSE), dS = P (dO V' - D): dV += P' dO, dbias += dS; then, with a softcap, dS
    // times the slope of tanh: dQ += scale dS K, dK += scale dS' Q.
    float *dq, *dk, *dv;
    // dQ, or dK and dV, have no value before and count as 0. Rows that see no key, or are not seen,
    // may be left as they are. Only for a prepared operation that can (struct op_needs).
    bool queries_begin, keys_begin;
    // dtype, layouts of dK and dV: get both after the addition, to nearest even; dK and dV need not
    // be written then. Rows that are not seen may be left as they are. NULL: not wanted. Only for a
    // prepared operation that folds.
    void *dk_out, *dv_out;
    const void *bias; // as in forward
    float *dbias;     // layout of the bias; NULL: not wanted
    const struct slice *slices;
    int32_t slice_count;
};

struct attention_backend; // stream and scratch of a backend; one per thread of control

#endif
