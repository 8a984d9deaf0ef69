// SPDX-License-Identifier: Apache-2.0
#include "tests/judge/dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/clones.h"
#include "judge/inputs.h"
#include "tests/support/definition.h"

// Distances are counted from the end of the sequences for bottom-right alignment.
static bool dense_sees(const struct dense *t, int64_t i, int64_t j)
{
    bool to_the_end = t->c.mask == MASK_CAUSAL_BOTTOM_RIGHT || t->c.mask == MASK_NONE_BOTTOM_RIGHT;
    int64_t right_of_diagonal = to_the_end ? (t->sq - i) - (t->sk - j) : j - i;
    bool sees = true;
    if (t->c.mask == MASK_CAUSAL || t->c.mask == MASK_CAUSAL_BOTTOM_RIGHT)
        sees = sees && right_of_diagonal <= 0;
    if (t->c.window_left >= 0)
        sees = sees && -right_of_diagonal <= t->c.window_left;
    if (t->c.window_right >= 0)
        sees = sees && right_of_diagonal <= t->c.window_right;
    return sees;
}

static void dense_input(const struct dense *t, enum input_tensor tensor, int64_t length,
                        int sequence, double *all)
{
    int heads = input_heads(&t->c, tensor), d = input_head_dim(&t->c, tensor);
    float values[HEAD_DIM_MAX];
    for (int64_t i = 0; i < length; i++)
        for (int head = 0; head < heads; head++) {
            input_token_head(&t->c, tensor, sequence, i, head, values);
            for (int e = 0; e < d; e++)
                all[(i * heads + head) * d + e] = values[e];
        }
}

// Returns the next `count` zeros of the allocation.
static double *dense_carve(double **next, int64_t count)
{
    double *piece = *next;
    *next += count;
    return piece;
}

double *dense_zeros(int64_t count)
{
    return calloc((size_t)count + 1, sizeof(double));
}

static void dense_extras(struct dense *t, int sequence)
{
    float value;
    for (int64_t n = 0; n < t->h * t->sq * t->sk && t->c.bias != BIAS_NONE; n++) {
        int64_t row = n / t->sk;
        input_bias(&t->c, sequence, (int)(row / t->sq), row % t->sq, n % t->sk, 1, &value);
        t->bias[n] = value;
    }
    for (int head = 0; head < t->h; head++)
        t->sink[head] = input_sink(&t->c, head);
}

void dense_init(struct dense *t, const struct cp_case *c, int sequence)
{
    *t = (struct dense){.c = *c,
                        .sq = definition_length(c, SIDE_Q, sequence),
                        .sk = definition_length(c, SIDE_KV, sequence),
                        .h = c->heads,
                        .hk = c->kv_heads,
                        .dk = c->head_dim_qk,
                        .dv = c->head_dim_v};
    int64_t q_rows = t->sq * t->h, k_rows = t->sk * t->hk, dims = t->dk + t->dv;
    int64_t pairs = q_rows * t->sk, all = 2 * (q_rows + k_rows) * dims + 4 * q_rows + k_rows;
    t->all = dense_zeros(all + 3 * pairs + 3 * t->h);
    double *next = t->all;
    t->q = dense_carve(&next, q_rows * t->dk);
    t->k = dense_carve(&next, k_rows * t->dk);
    t->v = dense_carve(&next, k_rows * t->dv);
    t->d_out = dense_carve(&next, q_rows * t->dv);
    t->out = dense_carve(&next, q_rows * t->dv);
    t->lse = dense_carve(&next, q_rows);
    t->delta = dense_carve(&next, q_rows);
    t->d_q = dense_carve(&next, q_rows * t->dk);
    t->d_k = dense_carve(&next, k_rows * t->dk);
    t->d_v = dense_carve(&next, k_rows * t->dv);
    t->bias = dense_carve(&next, pairs);
    t->d_bias = dense_carve(&next, pairs);
    t->logits = dense_carve(&next, pairs);
    t->sink = dense_carve(&next, t->h);
    t->d_sink = dense_carve(&next, t->h);
    t->max_logit = dense_carve(&next, t->h);
    t->terms_q = dense_carve(&next, q_rows);
    t->terms_k = dense_carve(&next, k_rows);
    t->terms_bias = dense_carve(&next, q_rows);
    dense_input(t, INPUT_Q, t->sq, sequence, t->q);
    dense_input(t, INPUT_K, t->sk, sequence, t->k);
    dense_input(t, INPUT_V, t->sk, sequence, t->v);
    dense_input(t, INPUT_DO, t->sq, sequence, t->d_out);
    dense_extras(t, sequence);
}

void dense_fini(struct dense *t)
{
    free(t->all);
}

double *dense_row(double *tensor, int64_t position, int heads, int head, int d)
{
    return tensor + (position * heads + head) * d;
}

// Vectors of LANES elements, which may begin at any double.
#define LANES 8
typedef double lanes __attribute__((vector_size(LANES * sizeof(double)), aligned(8)));

JUDGE_CLONES double dense_product(const double *x, const double *y, int n)
{
    lanes sums = {0};
    double sum = 0;
    int e = 0;
    for (; e + LANES <= n; e += LANES)
        sums += *(const lanes *)(x + e) * *(const lanes *)(y + e);
    for (; e < n; e++)
        sum += x[e] * y[e];
    for (int lane = 0; lane < LANES; lane++)
        sum += sums[lane];
    return sum;
}

JUDGE_CLONES static void dense_add(double *to, double factor, const double *x, int n)
{
    int e = 0;
    for (; e + LANES <= n; e += LANES)
        *(lanes *)(to + e) += factor * *(const lanes *)(x + e);
    for (; e < n; e++)
        to[e] += factor * x[e];
}

static double dense_scaled(const struct dense *t, int64_t i, int64_t j, int head)
{
    return case_scale(&t->c) *
           dense_product(dense_row(t->q, i, t->h, head, t->dk),
                         dense_row(t->k, j, t->hk, head / (t->h / t->hk), t->dk), t->dk);
}

double *dense_pair(const struct dense *t, double *tensor, int64_t i, int64_t j, int head)
{
    return tensor + (head * t->sq + i) * t->sk + j;
}

static double dense_logit(const struct dense *t, int64_t i, int64_t j, int head)
{
    double logit = dense_scaled(t, i, j, head), cap = t->c.softcap;
    if (cap > 0)
        logit = cap * tanh(logit / cap);
    return logit + *dense_pair(t, t->bias, i, j, head);
}

// A sink is a key with the value zero that all queries see.
static void dense_forward_row(struct dense *t, int64_t i, int head)
{
    double max = t->sink[head], sum, *out = dense_row(t->out, i, t->h, head, t->dv);
    double *logits = dense_pair(t, t->logits, i, 0, head);
    for (int64_t j = 0; j < t->sk; j++)
        if (dense_sees(t, i, j)) {
            logits[j] = dense_logit(t, i, j, head);
            max = fmax(max, logits[j]);
        }
    sum = isinf(max) ? 0 : exp(t->sink[head] - max);
    memset(out, 0, (size_t)t->dv * sizeof(double));
    for (int64_t j = 0; j < t->sk; j++) {
        double weight = dense_sees(t, i, j) ? exp(logits[j] - max) : 0;
        sum += weight;
        dense_add(out, weight, dense_row(t->v, j, t->hk, head / (t->h / t->hk), t->dv), t->dv);
    }
    for (int e = 0; e < t->dv && sum > 0; e++)
        out[e] /= sum;
    t->lse[head * t->sq + i] = sum > 0 ? max + log(sum) : -INFINITY;
}

void dense_max_logits(struct dense *t)
{
    for (int head = 0; head < t->h; head++) {
        t->max_logit[head] = -INFINITY;
        for (int64_t n = 0; n < t->sq * t->sk; n++)
            if (dense_sees(t, n / t->sk, n % t->sk))
                t->max_logit[head] =
                    fmax(t->max_logit[head], dense_logit(t, n / t->sk, n % t->sk, head));
    }
}

void dense_forward(struct dense *t)
{
    for (int head = 0; head < t->h; head++)
        for (int64_t i = 0; i < t->sq; i++)
            dense_forward_row(t, i, head);
}

// Variance of a dP without one of its products.
static double dense_products(const struct dense *t)
{
    double variance = t->c.inputs == INPUTS_TE ? pow(0.72, 4) : 1;
    return (t->dv - 1) * variance;
}

// Adds the contribution of one pair to all gradients.
static void dense_backward_pair(struct dense *t, int64_t i, int64_t j, int head)
{
    int kv = head / (t->h / t->hk);
    double *d_out = dense_row(t->d_out, i, t->h, head, t->dv),
           *v = dense_row(t->v, j, t->hk, kv, t->dv);
    double p = exp(*dense_pair(t, t->logits, i, j, head) - t->lse[head * t->sq + i]);
    double dp = dense_product(d_out, v, t->dv), delta = t->delta[head * t->sq + i];
    double ds = p * (dp - delta), factor = case_scale(&t->c);
    *dense_pair(t, t->d_bias, i, j, head) = ds;
    if (t->c.softcap > 0) {
        double slope = 1 / cosh(dense_scaled(t, i, j, head) / t->c.softcap);
        factor *= slope * slope;
    }
    ds *= factor;
    double square = pow(p * dp, 2) + pow(p * delta, 2) + pow(p, 2) * dense_products(t);
    t->terms_q[head * t->sq + i] += pow(factor, 2) * square;
    t->terms_k[kv * t->sk + j] += pow(factor, 2) * square;
    t->terms_bias[head * t->sq + i] += square;
    dense_add(dense_row(t->d_v, j, t->hk, kv, t->dv), p, d_out, t->dv);
    dense_add(dense_row(t->d_q, i, t->h, head, t->dk), ds, dense_row(t->k, j, t->hk, kv, t->dk),
              t->dk);
    dense_add(dense_row(t->d_k, j, t->hk, kv, t->dk), ds, dense_row(t->q, i, t->h, head, t->dk),
              t->dk);
}

// Few keys at a time, so that they stay in the cache.
static void dense_backward_pairs(struct dense *t, int head)
{
    const int64_t keys = 16;
    for (int64_t first = 0; first < t->sk; first += keys)
        for (int64_t i = 0; i < t->sq; i++)
            for (int64_t j = first; j < first + keys && j < t->sk; j++)
                if (dense_sees(t, i, j))
                    dense_backward_pair(t, i, j, head);
}

void dense_backward(struct dense *t)
{
    for (int head = 0; head < t->h; head++) {
        for (int64_t i = 0; i < t->sq; i++) {
            t->delta[head * t->sq + i] =
                dense_product(dense_row(t->d_out, i, t->h, head, t->dv),
                              dense_row(t->out, i, t->h, head, t->dv), t->dv);
            // The weight of the sink. Its value is zero, and so is its dP.
            double weight =
                isinf(t->sink[head]) ? 0 : exp(t->sink[head] - t->lse[head * t->sq + i]);
            t->d_sink[head] += weight * (0 - t->delta[head * t->sq + i]);
        }
        dense_backward_pairs(t, head);
    }
}
