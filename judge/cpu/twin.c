// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/twin.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/blas.h"
#include "judge/cpu/loops.h"
#include "judge/cpu/matrix.h"
#include "judge/cpu/room.h"
#include "judge/cpu/rows.h"
#include "judge/inputs.h"
#include "judge/rules.h"

// QUERIES_MAX: queries per block. SCORES_MAX: scores per matrix; with many keys this limit reduces
// the queries per block.
#define QUERIES_MAX 64
#define SCORES_MAX  (INT64_C(1) << 22)

// ---- what a call works on -----------------------------------------------------------------------

struct work {
    const struct cp_case *c;
    int sequence;
    struct mask mask;
    bool rest; // also compute the residual: products with the rests
    float scale;
    float base; // ln of the base of the exponentials: kernels use base 2, which matters in fp32
    int d_qk, d_v;
    struct range keys;        // keys in k and v
    int64_t block;            // queries of a block
    int64_t stride;           // of a row of scores
    struct drawn *drawn;      // may be NULL
    const float *k, *v;       // [keys][d]
    const float *q, *d_out;   // [block][d]
    float *own[INPUT_DO + 1]; // scratch for the rows that are not cached
    float *s;                 // [block][stride]: scores, then probabilities
    float *head, *tail;       // P, later dS: rounded to the dtype, and the rest
    float *dp;
    float *slope; // with a softcap only
    // Products with head and with tail. Queries: [block][d] of one result at a time. Keys: dV
    // [keys][d_v], then dK [keys][d_qk].
    float *twin, *residual;
    float *columns; // [stride]: sum of the terms of each key
    float key_rms, query_rms;
    float products; // rules_product_squares()
};

// Sets the addresses of the arrays and returns their bytes. `products`: number of rows of results.
static size_t work_lay_out(struct work *w, char *base, int64_t products)
{
    int64_t count = w->keys.end - w->keys.begin, scores = w->block * w->stride;
    size_t used = 0;
    struct {
        float **place;
        int64_t floats;
    } pieces[] = {{&w->own[INPUT_K], count * w->d_qk},
                  {&w->own[INPUT_V], count * w->d_v},
                  {&w->own[INPUT_Q], w->block * w->d_qk},
                  {&w->own[INPUT_DO], w->block * w->d_v},
                  {&w->s, scores},
                  {&w->head, scores},
                  {&w->tail, scores},
                  {&w->dp, scores},
                  {&w->slope, w->c->softcap != 0 ? scores : 0},
                  {&w->twin, products * (w->d_qk + w->d_v)},
                  {&w->residual, products * (w->d_qk + w->d_v)},
                  {&w->columns, w->stride}};
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        *pieces[i].place = base ? (float *)(void *)(base + used) : NULL;
        used += (size_t)loop_padded(pieces[i].floats) * sizeof(float);
    }
    return used;
}

static enum status work_init(struct work *w, const struct cp_case *c, int sequence,
                             struct range keys, int64_t products, bool rest, struct room *room,
                             struct error *error)
{
    int64_t stride = loop_padded(keys.end - keys.begin), rows = QUERIES_MAX;
    if (stride > SCORES_MAX / QUERIES_MAX)
        rows = stride < SCORES_MAX ? SCORES_MAX / stride : 1;
    *w = (struct work){.c = c,
                       .sequence = sequence,
                       .mask = mask_of(c, sequence),
                       .rest = rest && c->dtype != DTYPE_FP32,
                       .scale = (float)case_scale(c),
                       .base = c->dtype == DTYPE_FP32 ? (float)M_LN2 : 1,
                       .d_qk = c->head_dim_qk,
                       .d_v = c->head_dim_v,
                       .products = (float)rules_product_squares(c),
                       .keys = keys,
                       .block = rows,
                       .stride = stride};
    if (products == 0)
        products = rows;
    enum status status = room_grow(room, work_lay_out(w, NULL, products), error);
    if (status != STATUS_OK)
        return status;
    work_lay_out(w, room->base, products);
    memset(w->s, 0, (size_t)(rows * stride) * sizeof(float));
    memset(w->dp, 0, (size_t)(rows * stride) * sizeof(float));
    if (c->softcap != 0)
        memset(w->slope, 0, (size_t)(rows * stride) * sizeof(float));
    w->drawn = room_drawn(room);
    drawn_begin(w->drawn, c);
    blas_prepare();
    return STATUS_OK;
}

// Rows of an input, and the RMS of their elements.
static const float *load(const struct work *w, enum input_tensor tensor, int head,
                         struct range positions, float *rms)
{
    return drawn_rows(w->drawn, w->c, tensor, w->sequence, head, positions, w->own[tensor], rms);
}

// Rows of k or v from keys.begin on.
static const float *key_rows(const struct work *w, struct range keys)
{
    return w->k + (keys.begin - w->keys.begin) * w->d_qk;
}

static const float *value_rows(const struct work *w, struct range keys)
{
    return w->v + (keys.begin - w->keys.begin) * w->d_v;
}

static int64_t length(struct range r)
{
    return r.end - r.begin;
}

// ---- scores -------------------------------------------------------------------------------------

// Scores [m][w->stride] = alpha * A [m][k] * B [n][k]'
static void scores_of(const struct work *w, int64_t m, int64_t n, int k, float alpha,
                      const float *a, const float *b, float *scores)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, k, alpha, a, k, b, k, 0,
                scores, (int)w->stride);
}

// Applies the softcap to a row of scores. The slope 1 - tanh^2 is computed as 1 / cosh^2, without
// cancellation.
static void cap_row(const struct work *w, float *s, float *slope, int64_t count)
{
    float cap = (float)w->c->softcap;
    for (int64_t i = 0; i < count; i++) {
        float x = s[i] / cap, inverse = 1 / coshf(x);
        s[i] = cap * tanhf(x);
        slope[i] = inverse * inverse;
    }
}

static void add_bias(const struct work *w, int head, int64_t query, struct range keys, float *s)
{
    float bias[256];
    for (int64_t done = 0; done < length(keys); done += 256) {
        int64_t part = length(keys) - done < 256 ? length(keys) - done : 256;
        input_bias(w->c, w->sequence, head, query, keys.begin + done, part, bias);
        for (int64_t j = 0; j < part; j++)
            s[done + j] += bias[j];
    }
}

// Computes the logits of the queries in w->q into w->s.
static void block_logits(const struct work *w, int head, struct range queries, struct range keys)
{
    scores_of(w, length(queries), length(keys), w->d_qk, w->scale, w->q, key_rows(w, keys), w->s);
    for (int64_t i = 0; i < length(queries); i++) {
        float *s = w->s + i * w->stride;
        if (w->c->softcap != 0)
            cap_row(w, s, w->slope + i * w->stride, length(keys));
        if (w->c->bias != BIAS_NONE)
            add_bias(w, head, queries.begin + i, keys, s);
        if (w->base != 1)
            loop_scale(s, (float)M_LOG2E, w->stride);
    }
}

// The columns of a block that a query sees.
static struct range columns_of(const struct work *w, int64_t query, struct range keys)
{
    struct range r = mask_keys(&w->mask, query);
    if (r.begin == r.end)
        return (struct range){0, 0};
    return (struct range){r.begin - keys.begin, r.end - keys.begin};
}

static const float *slope_of(const struct work *w, int64_t row)
{
    return w->c->softcap != 0 ? w->slope + row * w->stride : NULL;
}

// ---- the query side -----------------------------------------------------------------------------

// w->twin [m][d] = head [m][n] * B, and w->residual = w->tail * B, or zeros without a rest.
static void products_of(const struct work *w, int64_t m, int64_t n, int d, const float *head,
                        const float *b)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, d, (int)n, 1, head,
                (int)w->stride, b, d, 0, w->twin, d);
    if (w->rest)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, d, (int)n, 1, w->tail,
                    (int)w->stride, b, d, 0, w->residual, d);
    else
        memset(w->residual, 0, (size_t)(m * d) * sizeof(float));
}

// Computes one row of results from the products: reference (may be NULL) and twin.
static void row_finish(const struct work *w, int64_t row, int d, double factor, double *reference,
                       float *twin)
{
    rows_finish(w->c->dtype, d, factor, w->twin + row * d, w->residual + row * d,
                reference ? reference + row * d : NULL, twin + row * d);
}

// Logarithms of two weights in fp16: the smallest normal number, and 128.5 denormal steps of 2^-24,
// which has the largest relative rounding error of weights with 8 significant bits.
#define NORMAL_LEAST (-14 * (float)M_LN2)
#define WEIGHT_LEAST (-11.7796034F)

// Returns the logit whose exponential is 1: the maximum, or the sink. A kernel that starts the
// online softmax with the sink computes weights relative to the sink. In fp16 these may be denormal
// and lose bits. The twin loses at most as many bits as bf16 lacks.
static float row_shift(const struct work *w, float max, double sink)
{
    float largest = max - (float)sink;
    if (w->c->dtype != DTYPE_FP16 || !(largest < NORMAL_LEAST))
        return max;
    return largest > WEIGHT_LEAST ? (float)sink : max - WEIGHT_LEAST;
}

// Turns the logits of a row into exponentials relative to *shift. Returns their sum, the sink
// included.
static double row_exponentials(const struct work *w, int head, struct range seen, float *s,
                               float *shift, bool reference, const struct expected_sums *sums)
{
    double sink = input_sink(w->c, head);
    float max = loop_max(s, seen.begin, seen.end);
    if (reference && sums->max_logit && max > *sums->max_logit)
        *sums->max_logit = max;
    *shift = max > -INFINITY ? row_shift(w, max, sink) : 0; // a bias may hide all keys
    double sum = loop_exp(s, seen.begin, seen.end, w->stride, *shift, w->base);
    return seen.begin < seen.end ? sum + exp(sink - *shift * (double)w->base) : 0;
}

// Returns the factor from exponentials to probabilities. With fp32 it has the rounding error of an
// LSE in fp32: kernels merge partial rows by the LSE and compute P from it, so an exact kernel has
// this error, too.
static double row_factor(const struct work *w, double sum, float shift)
{
    if (!(sum > 0))
        return 0;
    if (w->base == 1)
        return 1 / sum;
    float lse = (float)((shift + log2(sum)) * M_LN2);
    return exp2((double)shift - lse * (float)M_LOG2E);
}

static void block_out(const struct work *w, bool reference, int head, struct range queries,
                      struct range keys, double *factors, const struct expected_queries *e)
{
    double sink = input_sink(w->c, head);
    bool rounds = w->c->dtype != DTYPE_FP32;
    for (int64_t i = 0; i < length(queries); i++) {
        float shift, *s = w->s + i * w->stride;
        struct range seen = columns_of(w, queries.begin + i, keys);
        double sum = row_exponentials(w, head, seen, s, &shift, reference, &e->sums);
        factors[i] = row_factor(w, sum, shift);
        if (reference)
            e->lse[i] = rows_lse(shift, sum, sink);
        if (rounds)
            loop_split(w->c->dtype, s, w->head + i * w->stride,
                       w->rest ? w->tail + i * w->stride : NULL, w->stride);
    }
    products_of(w, length(queries), length(keys), w->d_v, rounds ? w->head : w->s,
                value_rows(w, keys));
    for (int64_t i = 0; i < length(queries); i++)
        row_finish(w, i, w->d_v, factors[i], reference ? e->out : NULL, e->out_twin);
}

// Adds P (dP - delta) of a row, before the softcap's slope, to the gradient of the bias.
static void row_bias(const struct work *w, bool reference, int64_t row, struct range keys,
                     const struct expected_queries *e)
{
    const float *p = w->s + row * w->stride, *dp = w->dp + row * w->stride;
    int64_t at = row * e->sums.dbias_stride + keys.begin;
    float delta = (float)(reference ? e->delta[row] : e->delta_twin[row]);
    loop_add_gradient(p, dp, (float)e->delta_twin[row], e->sums.dbias_twin + at, length(keys));
    *e->sums.dbias_terms += loop_terms(p, dp, delta, w->products, length(keys));
    if (reference)
        loop_add_gradient(p, dp, delta, e->sums.dbias + at, length(keys));
}

static void row_gradient(const struct work *w, bool reference, int64_t row, struct range keys,
                         double factor, const struct expected_queries *e)
{
    int64_t at = row * w->stride;
    float twin = (float)e->delta_twin[row];
    struct loop_gradient g = {.dtype = w->c->dtype,
                              .p = w->s + at,
                              .slope = slope_of(w, row),
                              .cap_error = rules_cap_error(w->c),
                              .delta = reference ? (float)e->delta[row] : twin,
                              .delta_twin = twin,
                              .products = w->products};
    loop_scale(w->s + at, (float)factor, w->stride);
    if (e->sums.dbias_twin)
        row_bias(w, reference, row, keys, e);
    double squares =
        loop_gradient(&g, w->dp + at, w->head + at, w->rest ? w->tail + at : NULL, NULL, w->stride);
    e->terms[row] = fabs(w->scale) * sqrt(squares) * w->key_rms;
}

// Computes the gradients of a block. Needs the exponentials that block_out() left in w->s.
static void block_gradient(struct work *w, bool reference, int head, struct range queries,
                           struct range keys, const double *factors,
                           const struct expected_queries *e)
{
    int64_t rows = length(queries);
    w->d_out = load(w, INPUT_DO, head, queries, &(float){0});
    scores_of(w, rows, length(keys), w->d_v, 1, w->d_out, value_rows(w, keys), w->dp);
    for (int64_t i = 0; i < rows; i++) {
        rows_delta(w->c, reference, w->d_out + i * w->d_v, i, e);
        if (reference && e->sums.dsink)
            rows_sink(w->c, head, i, e);
        row_gradient(w, reference, i, keys, factors[i], e);
    }
    products_of(w, rows, length(keys), w->d_qk, w->head, key_rows(w, keys));
    for (int64_t i = 0; i < rows; i++)
        row_finish(w, i, w->d_qk, w->scale, reference ? e->dq : NULL, e->dq_twin);
}

static void queries_block(struct work *w, bool reference, int head, struct range queries,
                          const struct expected_queries *e)
{
    struct range keys = mask_keys_of(&w->mask, queries);
    double factors[QUERIES_MAX];
    if (length(keys) == 0) {
        rows_nothing(w->c, reference, head, length(queries), e);
        return;
    }
    w->q = load(w, INPUT_Q, head, queries, &(float){0});
    block_logits(w, head, queries, keys);
    block_out(w, reference, head, queries, keys, factors, e);
    if (w->c->training)
        block_gradient(w, reference, head, queries, keys, factors, e);
}

enum status twin_queries(const struct cp_case *c, bool reference, int sequence, int head,
                         struct range queries, struct room *room, const struct expected_queries *e,
                         struct error *error)
{
    if (matrix_fits(c))
        return matrix_queries(c, reference, sequence, head, queries, room, e, error);
    struct mask mask = mask_of(c, sequence);
    struct range keys = mask_keys_of(&mask, queries);
    struct work w;
    enum status status = work_init(&w, c, sequence, keys, 0, reference, room, error);
    if (status != STATUS_OK)
        return status;
    int kv_head = head / (c->heads / c->kv_heads);
    unsigned before = rows_denormals_flush();
    w.k = load(&w, INPUT_K, kv_head, keys, &w.key_rms);
    w.v = load(&w, INPUT_V, kv_head, keys, &(float){0});
    for (int64_t first = queries.begin; first < queries.end; first += w.block) {
        struct range block = {first, first + w.block < queries.end ? first + w.block : queries.end};
        struct expected_queries part = rows_at(c, e, first - queries.begin);
        queries_block(&w, reference, head, block, &part);
    }
    rows_denormals_restore(before);
    return STATUS_OK;
}

// ---- the key side -------------------------------------------------------------------------------

// C [n][d] += A [m][n]' * B [m][d]
static void add_product(const struct work *w, int64_t m, int64_t n, int d, const float *a,
                        const float *b, float *c)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)n, d, (int)m, 1, a, (int)w->stride, b,
                d, 1, c, d);
}

// Statistics of one query head, from a given query on.
struct head_statistics {
    const double *lse, *delta, *delta_twin;
};

static struct head_statistics statistics_at(const struct expected_statistics *s, int64_t query)
{
    return (struct head_statistics){s->lse + query, s->delta + query, s->delta_twin + query};
}

// Computes P of a block into w->s, the twin's rounded P into w->head, and the rest into w->tail.
static void block_probabilities(const struct work *w, struct range queries, struct range keys,
                                const struct head_statistics *s)
{
    for (int64_t i = 0; i < length(queries); i++) {
        float *p = w->s + i * w->stride;
        struct range seen = columns_of(w, queries.begin + i, keys);
        if (seen.begin < 0)
            seen.begin = 0;
        if (seen.end > length(keys))
            seen.end = length(keys);
        (void)loop_exp(p, seen.begin, seen.end, w->stride, (float)s->lse[i] / w->base, w->base);
        loop_split(w->c->dtype, p, w->head + i * w->stride,
                   w->rest ? w->tail + i * w->stride : NULL, w->stride);
    }
}

static void block_key_gradients(const struct work *w, int64_t rows, const struct head_statistics *s)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = i * w->stride;
        struct loop_gradient g = {.dtype = w->c->dtype,
                                  .p = w->s + at,
                                  .slope = slope_of(w, i),
                                  .cap_error = rules_cap_error(w->c),
                                  .delta = (float)s->delta[i],
                                  .delta_twin = (float)s->delta_twin[i],
                                  .products = w->products};
        (void)loop_gradient(&g, w->dp + at, w->head + at, w->rest ? w->tail + at : NULL, w->columns,
                            w->stride);
    }
}

// Adds the contribution of a block of queries of one head to dV and dK in w->twin and w->residual,
// and to `terms` [keys of the call].
static void keys_block(struct work *w, int head, struct range queries, struct range keys,
                       const struct head_statistics *s, double *terms)
{
    int64_t rows = length(queries), count = length(keys), skipped = keys.begin - w->keys.begin;
    int64_t total = length(w->keys), dk = total * w->d_v + skipped * w->d_qk;
    int64_t dv = skipped * w->d_v;
    w->d_out = load(w, INPUT_DO, head, queries, &(float){0});
    block_logits(w, head, queries, keys);
    block_probabilities(w, queries, keys, s);
    add_product(w, rows, count, w->d_v, w->head, w->d_out, w->twin + dv);
    if (w->rest)
        add_product(w, rows, count, w->d_v, w->tail, w->d_out, w->residual + dv);
    scores_of(w, rows, count, w->d_v, 1, w->d_out, value_rows(w, keys), w->dp);
    memset(w->columns, 0, (size_t)w->stride * sizeof(float));
    block_key_gradients(w, rows, s);
    for (int64_t j = 0; j < count; j++)
        terms[skipped + j] += (double)w->columns[j] * w->query_rms * w->query_rms;
    add_product(w, rows, count, w->d_qk, w->head, w->q, w->twin + dk);
    if (w->rest)
        add_product(w, rows, count, w->d_qk, w->tail, w->q, w->residual + dk);
}

static void keys_head(struct work *w, int head, const struct expected_statistics *s, double *terms)
{
    struct range all = mask_queries_of(&w->mask, w->keys);
    for (int64_t first = all.begin; first < all.end; first += w->block) {
        struct range queries = {first, first + w->block < all.end ? first + w->block : all.end};
        struct range keys = mask_keys_of(&w->mask, queries);
        if (keys.begin < w->keys.begin)
            keys.begin = w->keys.begin;
        if (keys.end > w->keys.end)
            keys.end = w->keys.end;
        if (keys.begin >= keys.end)
            continue;
        struct head_statistics part = statistics_at(s, first);
        w->q = load(w, INPUT_Q, head, queries, &w->query_rms);
        keys_block(w, head, queries, keys, &part, terms);
    }
}

enum status twin_keys(const struct cp_case *c, bool reference, int sequence, int kv_head,
                      struct range keys, const struct expected_statistics *statistics,
                      struct room *room, const struct expected_keys *e, struct error *error)
{
    if (matrix_fits(c))
        return matrix_keys(c, reference, sequence, kv_head, keys, statistics, room, e, error);
    int64_t count = length(keys);
    struct work w;
    enum status status = work_init(&w, c, sequence, keys, count, reference, room, error);
    if (status != STATUS_OK)
        return status;
    unsigned before = rows_denormals_flush();
    w.k = load(&w, INPUT_K, kv_head, keys, &(float){0});
    w.v = load(&w, INPUT_V, kv_head, keys, &(float){0});
    memset(w.twin, 0, (size_t)(count * (w.d_qk + w.d_v)) * sizeof(float));
    memset(w.residual, 0, (size_t)(count * (w.d_qk + w.d_v)) * sizeof(float));
    memset(e->terms, 0, (size_t)count * sizeof(double));
    int group = c->heads / c->kv_heads;
    for (int i = 0; i < group; i++) {
        int64_t at = i * w.mask.queries;
        struct expected_statistics s = {statistics->lse + at, statistics->delta + at,
                                        statistics->delta_twin + at};
        keys_head(&w, kv_head * group + i, &s, e->terms);
    }
    for (int64_t j = 0; j < count; j++) {
        e->terms[j] = fabs(w.scale) * sqrt(e->terms[j]);
        row_finish(&w, j, w.d_v, 1, reference ? e->dv : NULL, e->dv_twin);
    }
    w.twin += count * w.d_v;
    w.residual += count * w.d_v;
    for (int64_t j = 0; j < count; j++)
        row_finish(&w, j, w.d_qk, w.scale, reference ? e->dk : NULL, e->dk_twin);
    rows_denormals_restore(before);
    return STATUS_OK;
}
