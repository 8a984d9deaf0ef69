// SPDX-License-Identifier: Apache-2.0
// The operations a backend provides, one table per backend. Plans know nothing else of a backend.
//
// Layouts (C order): Q, dO-like [rows][heads][d]; K, V-like [rows][kv_heads][d]; LSE, D
// [heads][q_rows]. Inputs are in the case's dtype, accumulators (O, LSE, dQ, dK, dV) in fp32. Query
// head h uses key head (h + head_phase) / group. Memory belongs to the caller; a backend keeps only
// scratch of its own.
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
    // Bias of query head h, query i and key j of a slice, added to the logit:
    // bias[h * bias_head_stride + (bias_row + i * bias_row_step) * bias_row_stride + bias_column +
    // j]; a head stride or row step of 0: one for all.
    int64_t bias_head_stride, bias_row_stride, bias_row_step;
    bool deterministic; // the same bits in every run; a backend may be faster without
};

struct attention_forward {
    struct attention_shape shape;
    const void *q, *k, *v;
    // Running result: O normalised, LSE natural logarithm. Start with O = 0, LSE = -inf, or with
    // LSE = the logit of a sink, which has no value. A row that sees nothing is left as it is.
    // Merge in fp32 with what was there (L0): L = log(e^L0 + e^l), O = e^(L0-L) O + e^(l-L) o.
    float *o, *lse;
    const void *bias; // dtype; NULL: none
    float *max_logit; // [heads]: raised to the largest visible logit; NULL: not wanted
    const struct slice *slices;
    int32_t slice_count;
};

struct attention_backward {
    struct attention_shape shape;
    const void *q, *k, *v, *d_out;
    const float *lse, *d; // of the complete forward; rows with LSE = -inf contribute nothing
    // P = exp(logit - LSE), dS = P (dO V' - D): dV += P' dO, dbias += dS; then, with a softcap, dS
    // times the slope of tanh: dQ += scale dS K, dK += scale dS' Q.
    float *dq, *dk, *dv;
    const void *bias; // as in forward
    float *dbias;     // laid out as the bias; NULL: not wanted
    const struct slice *slices;
    int32_t slice_count;
};

struct attention_backend; // scratch; one per thread of control

struct attention_ops {
    const char *name; // "cpu"
    enum status (*create)(struct attention_backend **backend, struct error *error);
    void (*destroy)(struct attention_backend *backend);
    enum status (*forward)(struct attention_backend *backend, const struct attention_forward *args,
                           struct error *error);
    enum status (*backward)(struct attention_backend *backend,
                            const struct attention_backward *args, struct error *error);
    // D[h][row] = sum over d_v of dO * O, for all q_rows. dO in dtype, O fp32.
    void (*row_dot)(struct attention_backend *backend, const struct attention_shape *shape,
                    const void *d_out, const float *o, float *d);
    void (*add)(struct attention_backend *backend, const float *source, float *destination,
                int64_t count);
    // destination = max(destination, source); NaN where either is NaN
    void (*max)(struct attention_backend *backend, const float *source, float *destination,
                int64_t count);
    // destination[h][row] = source[h], for all heads and q_rows of the shape.
    void (*fill_heads)(struct attention_backend *backend, const struct attention_shape *shape,
                       const float *source, float *destination);
    // dsink[h] -= sum over the rows of the slices of exp(sink[h] - LSE[h][row]) * D[h][row].
    void (*sink_grad)(struct attention_backend *backend, const struct attention_shape *shape,
                      const struct slice *slices, int32_t slice_count, const float *sink,
                      const float *lse, const float *d, float *dsink);
    void (*convert)(struct attention_backend *backend, enum case_dtype dtype, const float *source,
                    void *destination, int64_t count);
    void (*fill)(struct attention_backend *backend, float *destination, float value, int64_t count);
};

extern const struct attention_ops attention_cpu; // kernels/cpu

#endif
