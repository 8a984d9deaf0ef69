// SPDX-License-Identifier: Apache-2.0
// A provider in plain C: one kernel, straight from the definition in cpattn_provider.h, in one
// thread. To start a provider of your own, copy it.
//
// Macros select variants for tests. TOY_MERGES: it merges partial results by itself.
// TOY_WRONG_SCALE: its results are wrong. TOY_CRASHES, TOY_FAILS: its forward crashes or returns an
// error. TOY_OUTSIDE, TOY_INPUT: its results are right, but its forward also writes one element
// behind O, or changes Q. TOY_CAUSAL_ONLY: it supports only causal rectangles. TOY_MOODS: it
// crashes or fails in loading or opening while there is a file FILE.poisonous, FILE.deadly or
// FILE.closed beside it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpattn_provider.h"

#ifdef TOY_MOODS
#include <dlfcn.h>
#include <unistd.h>
#endif

// ---- elements -----------------------------------------------------------------------------------

static float bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static double half_load(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return half >> 15 ? -value : value;
}

static double load(int dtype, const void *tensor, int64_t index)
{
    if (dtype == CPATTN_FP32)
        return ((const float *)tensor)[index];
    uint16_t half = ((const uint16_t *)tensor)[index];
    return dtype == CPATTN_BF16 ? (double)bits_float((uint32_t)half << 16) : half_load(half);
}

// ---- one pair of a query and a key --------------------------------------------------------------

struct pair {
    const struct cpattn_attention *a;
    const struct cpattn_rectangle *r;
    int64_t i, j;
    int head;
};

static int64_t q_vector(const struct pair *p)
{
    return (p->r->q_row + p->i * p->a->row_step) * p->a->heads + p->head;
}

static int64_t kv_head(const struct pair *p)
{
    return (p->head + p->a->head_phase) / p->a->group;
}

static int64_t kv_vector(const struct pair *p)
{
    return (p->r->kv_row + p->j * p->a->row_step) * p->a->kv_heads + kv_head(p);
}

static int is_visible(const struct pair *p)
{
    return (p->a->band_left < 0 || p->i - p->j <= p->a->band_left) &&
           (p->a->band_right < 0 || p->j - p->i <= p->a->band_right);
}

static double dot(int dtype, const void *x, int64_t x_vector, const void *y, int64_t y_vector,
                  int64_t d)
{
    double sum = 0;
    for (int64_t e = 0; e < d; e++)
        sum += load(dtype, x, x_vector * d + e) * load(dtype, y, y_vector * d + e);
    return sum;
}

static int64_t bias_index(const struct pair *p)
{
    return p->r->bias + p->head * p->a->bias_head_stride + p->i * p->a->bias_row_stride + p->j;
}

// *slope: the derivative of the logit by the scaled product.
static double logit(const struct pair *p, const void *q, const void *k, const void *bias,
                    double *slope)
{
    const struct cpattn_attention *a = p->a;
    double x = a->scale * dot(a->dtype, q, q_vector(p), k, kv_vector(p), a->head_dim_qk);
    *slope = 1;
#ifdef TOY_WRONG_SCALE
    x /= a->scale;
#endif
    if (a->softcap != 0) {
        double t = tanh(x / a->softcap);
        x = a->softcap * t;
        *slope = 1 - t * t;
    }
    return bias ? x + load(a->dtype, bias, bias_index(p)) : x;
}

// ---- forward ------------------------------------------------------------------------------------

#ifdef TOY_MERGES
static void row_store(const struct pair *p, const struct cpattn_forward *args, const double *out,
                      double lse)
{
    int64_t row = p->r->q_row + p->i * p->a->row_step, d = p->a->head_dim_v;
    float *o = (float *)args->o + q_vector(p) * d;
    float *running = args->lse + p->head * p->a->q_rows + row;
    double most = fmax(*running, lse), sum = exp(*running - most) + exp(lse - most);
    for (int64_t e = 0; e < d; e++)
        o[e] = (float)((exp(*running - most) * o[e] + exp(lse - most) * out[e]) / sum);
    *running = (float)(most + log(sum));
}
#else
static void row_store(const struct pair *p, const struct cpattn_forward *args, const double *out,
                      double lse)
{
    int64_t d = p->a->head_dim_v;
    float *o = (float *)args->o + ((p->r->q_packed + p->i) * p->a->heads + p->head) * d;
    for (int64_t e = 0; e < d; e++)
        o[e] = (float)out[e];
    args->lse[p->r->q_packed * p->a->heads + p->head * p->r->q_len + p->i] = (float)lse;
}
#endif

static void row_forward(struct pair *p, const struct cpattn_forward *args, double *out)
{
    int64_t d = p->a->head_dim_v;
    double most = -INFINITY, sum = 0, slope;
    memset(out, 0, (size_t)d * sizeof(*out));
    for (p->j = 0; p->j < p->r->kv_len; p->j++)
        if (is_visible(p))
            most = fmax(most, logit(p, args->q, args->k, args->bias, &slope));
    for (p->j = 0; p->j < p->r->kv_len; p->j++) {
        if (!is_visible(p))
            continue;
        double weight = exp(logit(p, args->q, args->k, args->bias, &slope) - most);
        sum += weight;
        for (int64_t e = 0; e < d; e++)
            out[e] += weight * load(p->a->dtype, args->v, kv_vector(p) * d + e);
    }
    for (int64_t e = 0; e < d; e++)
        out[e] /= sum;
    if (args->max_logit && (float)most > args->max_logit[p->head])
        args->max_logit[p->head] = (float)most;
    row_store(p, args, out, most + log(sum));
}

static int toy_forward(void *state, void *prepared, const struct cpattn_attention *a,
                       const struct cpattn_forward *args, char *reason, uint64_t reason_size)
{
    (void)state;
    (void)prepared;
#ifdef TOY_CRASHES
    abort();
#endif
#ifdef TOY_FAILS
    snprintf(reason, reason_size, "the toy is broken");
    return CPATTN_PROVIDER_FAILED;
#endif
    (void)reason;
    (void)reason_size;
    for (int32_t n = 0; n < a->rectangle_count; n++) {
        struct pair p = {.a = a, .r = &a->rectangles[n]};
        for (p.head = 0; p.head < a->heads; p.head++)
            for (p.i = 0; p.i < p.r->q_len; p.i++)
                row_forward(&p, args, (double *)args->workspace);
    }
#ifdef TOY_OUTSIDE
#ifdef TOY_MERGES
    ((float *)args->o)[a->q_rows * a->heads * a->head_dim_v] = 0;
#else
    ((float *)args->o)[a->q_packed_rows * a->heads * a->head_dim_v] = 0;
#endif
#endif
#ifdef TOY_INPUT
    *(uint16_t *)(uintptr_t)args->q ^= 1;
#endif
    return CPATTN_PROVIDER_OK;
}

// ---- backward -----------------------------------------------------------------------------------

// Index of the LSE and of delta of a row.
static int64_t value_index(const struct pair *p)
{
#ifdef TOY_MERGES
    return p->head * p->a->q_rows + p->r->q_row + p->i * p->a->row_step;
#else
    return p->r->q_packed * p->a->heads + p->head * p->r->q_len + p->i;
#endif
}

static int64_t dq_vector(const struct pair *p)
{
#ifdef TOY_MERGES
    return q_vector(p);
#else
    return (p->r->q_packed + p->i) * p->a->heads + p->head;
#endif
}

static int64_t dkv_vector(const struct pair *p)
{
#ifdef TOY_MERGES
    return kv_vector(p);
#else
    return (p->r->kv_packed + p->j) * p->a->kv_heads + kv_head(p);
#endif
}

static void pair_backward(const struct pair *p, const struct cpattn_backward *args)
{
    const struct cpattn_attention *a = p->a;
    int64_t q = q_vector(p), k = kv_vector(p), value = value_index(p);
    double slope;
    double weight = exp(logit(p, args->q, args->k, args->bias, &slope) - args->lse[value]);
    double d_weight = dot(a->dtype, args->d_out, q, args->v, k, a->head_dim_v);
    double d_logit = weight * (d_weight - args->delta[value]);
    if (args->dbias)
        args->dbias[bias_index(p)] += (float)d_logit;
    d_logit *= slope * a->scale;
    for (int64_t e = 0; e < a->head_dim_v; e++)
        ((float *)args->dv)[dkv_vector(p) * a->head_dim_v + e] +=
            (float)(weight * load(a->dtype, args->d_out, q * a->head_dim_v + e));
    for (int64_t e = 0; e < a->head_dim_qk; e++) {
        ((float *)args->dq)[dq_vector(p) * a->head_dim_qk + e] +=
            (float)(d_logit * load(a->dtype, args->k, k * a->head_dim_qk + e));
        ((float *)args->dk)[dkv_vector(p) * a->head_dim_qk + e] +=
            (float)(d_logit * load(a->dtype, args->q, q * a->head_dim_qk + e));
    }
}

// A provider that does not merge overwrites the gradients. This kernel adds to them, so it clears
// them first.
static void gradients_clear(const struct cpattn_attention *a, const struct cpattn_backward *args)
{
#ifndef TOY_MERGES
    size_t q = (size_t)(a->q_packed_rows * a->heads),
           kv = (size_t)(a->kv_packed_rows * a->kv_heads);
    memset(args->dq, 0, q * (size_t)a->head_dim_qk * sizeof(float));
    memset(args->dk, 0, kv * (size_t)a->head_dim_qk * sizeof(float));
    memset(args->dv, 0, kv * (size_t)a->head_dim_v * sizeof(float));
#else
    (void)a;
    (void)args;
#endif
}

static int toy_backward(void *state, void *prepared, const struct cpattn_attention *a,
                        const struct cpattn_backward *args, char *reason, uint64_t reason_size)
{
    (void)state;
    (void)prepared;
    (void)reason;
    (void)reason_size;
    gradients_clear(a, args);
    for (int32_t n = 0; n < a->rectangle_count; n++) {
        struct pair p = {.a = a, .r = &a->rectangles[n]};
        for (p.head = 0; p.head < a->heads; p.head++)
            for (p.i = 0; p.i < p.r->q_len; p.i++)
                for (p.j = 0; p.j < p.r->kv_len; p.j++)
                    if (is_visible(&p))
                        pair_backward(&p, args);
    }
    return CPATTN_PROVIDER_OK;
}

// ---- the table ----------------------------------------------------------------------------------

static int toy_supports(void *state, const struct cpattn_attention *a, char *reason,
                        uint64_t reason_size)
{
    (void)state;
#ifdef TOY_CAUSAL_ONLY
    if (a->band_right != 0) {
        snprintf(reason, reason_size, "the toy knows causal rectangles only");
        return CPATTN_PROVIDER_UNSUPPORTED;
    }
#endif
    if (a->head_dim_qk <= 128)
        return CPATTN_PROVIDER_OK;
    snprintf(reason, reason_size, "head_dim_qk is %d; the toy takes 1 to 128", a->head_dim_qk);
    return CPATTN_PROVIDER_UNSUPPORTED;
}

static int toy_prepare(void *state, const struct cpattn_attention *a,
                       struct cpattn_prepared *prepared, char *reason, uint64_t reason_size)
{
    (void)state;
    (void)reason;
    (void)reason_size;
    prepared->result_dtype = CPATTN_FP32;
    prepared->wants_delta = a->backward;
    prepared->workspace_bytes = a->backward ? 0 : a->head_dim_v * (int64_t)sizeof(double);
    return CPATTN_PROVIDER_OK;
}

#ifdef TOY_MOODS
// True if there is a file whose name is the object's name followed by `mood`.
static int is_in_mood(const char *mood)
{
    Dl_info own;
    char path[4096];
    if (!dladdr(&is_in_mood, &own))
        return 0;
    snprintf(path, sizeof(path), "%s.%s", own.dli_fname, mood);
    return access(path, F_OK) == 0;
}

__attribute__((constructor)) static void toy_load(void)
{
    if (is_in_mood("poisonous"))
        abort();
}

static int toy_open(void **state, char *reason, uint64_t reason_size)
{
    (void)state;
    if (is_in_mood("deadly"))
        abort();
    if (!is_in_mood("closed"))
        return CPATTN_PROVIDER_OK;
    snprintf(reason, reason_size, "the toy's box is closed");
    return CPATTN_PROVIDER_FAILED;
}
#endif

static const struct cpattn_provider toy = {
    .size = sizeof(struct cpattn_provider),
    .version = CPATTN_PROVIDER_VERSION,
    .memory = CPATTN_MEMORY_HOST,
#ifdef TOY_MERGES
    .flags = CPATTN_PROVIDER_MERGES,
#endif
    .about = "a toy",
#ifdef TOY_MOODS
    .open = toy_open,
#endif
    .supports = toy_supports,
    .prepare = toy_prepare,
    .forward = toy_forward,
    .backward = toy_backward,
};

const struct cpattn_provider *cpattn_provider(void)
{
    return &toy;
}
