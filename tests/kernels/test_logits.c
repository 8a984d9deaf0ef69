// SPDX-License-Identifier: Apache-2.0
// Compares softcap, bias, sinks and largest logits of the CPU kernels with plain fp64 loops that
// follow the definition.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "tests/support/generate.h"
#include "tests/support/runner.h"

#define HEADS       4
#define GROUP       2
#define KV_HEADS    3 // at PHASE 1 the 4 query heads use 3 key heads
#define PHASE       1
#define D_QK        24
#define D_V         17
#define QUERIES_MAX 150
#define KEYS_MAX    500 // more than TILE_KEYS: several tiles
#define GUARD       5   // columns of the bias before the first key

struct sample {
    enum case_dtype dtype;
    int queries, keys;
    double softcap;
    bool bias, head_dim, row_dim; // head_dim, row_dim: one bias per head, per query row
    bool sink;
};

static const struct sample samples[] = {
    {DTYPE_FP32, 1, 1, 0, true, true, true, true},
    {DTYPE_FP32, 40, 33, 3, false, false, false, false},
    {DTYPE_FP32, QUERIES_MAX, KEYS_MAX, 0, true, true, true, false},
    {DTYPE_BF16, QUERIES_MAX, KEYS_MAX, 5, true, true, true, true},
    {DTYPE_FP16, 77, 90, 50, true, false, true, false},
    {DTYPE_BF16, 77, 90, 0, true, true, false, true},
    {DTYPE_FP32, 30, KEYS_MAX, 1, true, false, false, true},
};
#define SAMPLE_COUNT ((int)(sizeof(samples) / sizeof(samples[0])))

// Inputs q, k, v, d_out and bias hold the exact values in fp32; *_data hold the same values in the
// dtype. Results of the kernels are fp32; the expected results, *_true, are fp64.
struct trial {
    const struct sample *s;
    struct attention_shape shape;
    int64_t bias_count;
    float *q, *k, *v, *d_out, *bias;
    void *q_data, *k_data, *v_data, *d_out_data, *bias_data;
    float *o, *lse, *d, *dq, *dk, *dv, *dbias, *max_logit, *dsink;
    double *o_true, *lse_true, *dq_true, *dk_true, *dv_true, *dbias_true;
    double max_true[HEADS], dsink_true[HEADS];
    float sink[HEADS];
    struct slice slices[2];
};

static const double scale = 0.4;

static float unit(uint64_t *random)
{
    return (float)generate_below(random, 20001) / 5000 - 2;
}

// Draws `count` numbers that the dtype represents exactly. Returns them in fp32, and sets *data to
// the same numbers in the dtype.
static float *draw(enum case_dtype dtype, uint64_t *random, int64_t count, void **data)
{
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    *data = malloc((size_t)(count + 1) * sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        dtype_store(dtype, *data, i, unit(random));
        values[i] = dtype_load(dtype, *data, i);
    }
    return values;
}

static void *zeros(int64_t count, size_t size)
{
    return calloc((size_t)count + 1, size);
}

static void trial_inputs(struct trial *t)
{
    const struct sample *s = t->s;
    uint64_t random = (uint64_t)(s - samples) + 1;
    t->shape.bias_row_stride = s->row_dim ? s->keys + GUARD : 0;
    t->shape.bias_row_step = s->row_dim ? 2 : 0;
    int64_t head_elements = s->keys + GUARD + (2 * s->queries + 3) * t->shape.bias_row_stride;
    t->shape.bias_head_stride = s->head_dim ? head_elements : 0;
    t->bias_count = s->head_dim ? HEADS * head_elements : head_elements;
    t->q = draw(s->dtype, &random, s->queries * HEADS * D_QK, &t->q_data);
    t->k = draw(s->dtype, &random, s->keys * KV_HEADS * D_QK, &t->k_data);
    t->v = draw(s->dtype, &random, s->keys * KV_HEADS * D_V, &t->v_data);
    t->d_out = draw(s->dtype, &random, s->queries * HEADS * D_V, &t->d_out_data);
    t->bias = draw(s->dtype, &random, t->bias_count, &t->bias_data);
    for (int head = 0; head < HEADS; head++)
        t->sink[head] = s->sink ? 3 * unit(&random) : -INFINITY;
}

// Two slices: all queries with the first third of the keys, and with the rest. Causal; the diagonal
// runs through the middle query and the middle key.
static void trial_slices(struct trial *t)
{
    int64_t keys = t->s->keys, cut = keys / 3, shift = t->s->queries / 2 - keys / 2;
    for (int i = 0; i < 2; i++) {
        int64_t first = i == 0 ? 0 : cut;
        t->slices[i] = (struct slice){.q_len = t->s->queries,
                                      .kv_row = first,
                                      .kv_len = i == 0 ? cut : keys - cut,
                                      .offset = first + shift,
                                      .left = SLICE_UNBOUNDED,
                                      .right = 0,
                                      .bias_row = t->s->row_dim ? 3 : 0,
                                      .bias_column = GUARD + first};
    }
}

static bool visible(const struct trial *t, int64_t i, int64_t j)
{
    return j + t->s->queries / 2 - t->s->keys / 2 - i <= 0;
}

static void trial_init(struct trial *t, const struct sample *s)
{
    *t = (struct trial){.s = s};
    t->shape = (struct attention_shape){.dtype = s->dtype,
                                        .heads = HEADS,
                                        .kv_heads = KV_HEADS,
                                        .group = GROUP,
                                        .head_phase = PHASE,
                                        .d_qk = D_QK,
                                        .d_v = D_V,
                                        .q_rows = s->queries,
                                        .row_step = 1,
                                        .scale = scale,
                                        .softcap = s->softcap};
    trial_inputs(t);
    trial_slices(t);
    int64_t q = s->queries * HEADS, kv = s->keys * KV_HEADS;
    t->o = zeros(q * D_V, sizeof(float));
    t->lse = zeros(q, sizeof(float));
    t->d = zeros(q, sizeof(float));
    t->dq = zeros(q * D_QK, sizeof(float));
    t->dk = zeros(kv * D_QK, sizeof(float));
    t->dv = zeros(kv * D_V, sizeof(float));
    t->dbias = zeros(t->bias_count, sizeof(float));
    t->max_logit = zeros(HEADS, sizeof(float));
    t->dsink = zeros(HEADS, sizeof(float));
    t->o_true = zeros(q * D_V, sizeof(double));
    t->lse_true = zeros(q, sizeof(double));
    t->dq_true = zeros(q * D_QK, sizeof(double));
    t->dk_true = zeros(kv * D_QK, sizeof(double));
    t->dv_true = zeros(kv * D_V, sizeof(double));
    t->dbias_true = zeros(t->bias_count, sizeof(double));
}

static void trial_fini(struct trial *t)
{
    void *all[] = {t->q,        t->k,       t->v,         t->d_out,      t->bias,
                   t->q_data,   t->k_data,  t->v_data,    t->d_out_data, t->bias_data,
                   t->o,        t->lse,     t->d,         t->dq,         t->dk,
                   t->dv,       t->dbias,   t->max_logit, t->dsink,      t->o_true,
                   t->lse_true, t->dq_true, t->dk_true,   t->dv_true,    t->dbias_true};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

// ---- the definition ----

static double dot(const float *a, const float *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static int64_t bias_index(const struct trial *t, int head, int64_t i, int64_t j)
{
    const struct attention_shape *s = &t->shape;
    int64_t row = t->s->row_dim ? 3 + i * s->bias_row_step : 0;
    return head * s->bias_head_stride + row * s->bias_row_stride + GUARD + j;
}

static int kv_head(int head)
{
    return (head + PHASE) / GROUP;
}

// The scaled and softcapped logit, without the bias.
static double capped(const struct trial *t, int head, int64_t i, int64_t j)
{
    double x = scale * dot(t->q + (i * HEADS + head) * D_QK,
                           t->k + (j * KV_HEADS + kv_head(head)) * D_QK, D_QK);
    return t->s->softcap > 0 ? t->s->softcap * tanh(x / t->s->softcap) : x;
}

static double logit(const struct trial *t, int head, int64_t i, int64_t j)
{
    double bias = t->s->bias ? t->bias[bias_index(t, head, i, j)] : 0;
    return capped(t, head, i, j) + bias;
}

static void true_forward(struct trial *t, int head, int64_t i)
{
    double sum = exp((double)t->sink[head]), *o = t->o_true + (i * HEADS + head) * D_V;
    for (int64_t j = 0; j < t->s->keys; j++) {
        if (!visible(t, i, j))
            continue;
        double x = logit(t, head, i, j);
        t->max_true[head] = fmax(t->max_true[head], x);
        sum += exp(x);
        for (int e = 0; e < D_V; e++)
            o[e] += exp(x) * t->v[(j * KV_HEADS + kv_head(head)) * D_V + e];
    }
    for (int e = 0; e < D_V && sum > 0; e++)
        o[e] /= sum;
    t->lse_true[head * t->s->queries + i] = log(sum);
}

static void true_pair(struct trial *t, int head, int64_t i, int64_t j, double d)
{
    int64_t q = i * HEADS + head, kv = j * KV_HEADS + kv_head(head);
    double p = exp(logit(t, head, i, j) - t->lse_true[head * t->s->queries + i]);
    double ds = p * (dot(t->d_out + q * D_V, t->v + kv * D_V, D_V) - d);
    if (t->s->bias)
        t->dbias_true[bias_index(t, head, i, j)] += ds;
    if (t->s->softcap > 0)
        ds *= 1 - pow(capped(t, head, i, j) / t->s->softcap, 2);
    for (int e = 0; e < D_QK; e++) {
        t->dq_true[q * D_QK + e] += scale * ds * t->k[kv * D_QK + e];
        t->dk_true[kv * D_QK + e] += scale * ds * t->q[q * D_QK + e];
    }
    for (int e = 0; e < D_V; e++)
        t->dv_true[kv * D_V + e] += p * t->d_out[q * D_V + e];
}

static void true_backward(struct trial *t, int head, int64_t i)
{
    int64_t q = i * HEADS + head;
    double d = 0, lse = t->lse_true[head * t->s->queries + i];
    for (int e = 0; e < D_V; e++)
        d += t->d_out[q * D_V + e] * t->o_true[q * D_V + e];
    if (t->s->sink)
        t->dsink_true[head] -= exp(t->sink[head] - lse) * d;
    for (int64_t j = 0; j < t->s->keys; j++)
        if (visible(t, i, j))
            true_pair(t, head, i, j, d);
}

static void true_results(struct trial *t)
{
    for (int head = 0; head < HEADS; head++) {
        t->max_true[head] = -INFINITY;
        for (int64_t i = 0; i < t->s->queries; i++) {
            true_forward(t, head, i);
            true_backward(t, head, i);
        }
    }
}

// ---- the kernels ----

static void run(struct trial *t)
{
    struct attention_backend *backend;
    struct error error;
    const struct backend_ops *ops = &backend_cpu;
    const void *bias = t->s->bias ? t->bias_data : NULL;
    ck_assert_int_eq(ops->create(&backend, &error), STATUS_OK);
    ops->fill_heads(backend, &t->shape, t->sink, t->lse);
    ops->fill(backend, t->max_logit, -INFINITY, HEADS);
    struct attention_forward forward = {.shape = t->shape,
                                        .q = t->q_data,
                                        .k = t->k_data,
                                        .v = t->v_data,
                                        .o = t->o,
                                        .lse = t->lse,
                                        .bias = bias,
                                        .max_logit = t->max_logit,
                                        .slices = t->slices,
                                        .slice_count = 2};
    ck_assert_int_eq(ops->attention->forward(backend, &forward, &error), STATUS_OK);
    ops->row_dot(backend, &t->shape, t->d_out_data, t->o, t->d);
    struct row_run runs[1];
    struct packed_rows rows;
    packed_rows_of_slices(&rows, runs, t->slices, 1, t->shape.row_step);
    if (t->s->sink)
        ops->sink_grad(backend, &t->shape, &rows, NULL, t->sink, t->lse, t->d, t->dsink);
    struct attention_backward backward = {.shape = t->shape,
                                          .q = t->q_data,
                                          .k = t->k_data,
                                          .v = t->v_data,
                                          .d_out = t->d_out_data,
                                          .lse = t->lse,
                                          .d = t->d,
                                          .dq = t->dq,
                                          .dk = t->dk,
                                          .dv = t->dv,
                                          .bias = bias,
                                          .dbias = bias ? t->dbias : NULL,
                                          .slices = t->slices,
                                          .slice_count = 2};
    ck_assert_int_eq(ops->attention->backward(backend, &backward, &error), STATUS_OK);
    ops->destroy(backend);
}

// Largest absolute error, relative to the largest expected absolute value. Infinite if two numbers
// differ and one of them is not finite.
static double error_of(const float *got, const double *expected, int64_t count)
{
    double error = 0, magnitude = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isinf(expected[i]) && got[i] == expected[i])
            continue;
        double difference = fabs(got[i] - expected[i]);
        if (!isfinite(difference))
            return INFINITY;
        error = fmax(error, difference);
        magnitude = fmax(magnitude, fabs(expected[i]));
    }
    return error == 0 ? 0 : error / magnitude;
}

// For fp32 rounding errors in sums over thousands of pairs. Largest observed error: 2e-6.
#define TOLERANCE 5e-6

START_TEST(kernels_follow_the_definition)
{
    struct trial t;
    trial_init(&t, &samples[_i]);
    true_results(&t);
    run(&t);
    int64_t q = t.s->queries * HEADS, kv = t.s->keys * KV_HEADS;
    ck_assert_double_le(error_of(t.o, t.o_true, q * D_V), TOLERANCE);
    ck_assert_double_le(error_of(t.lse, t.lse_true, q), TOLERANCE);
    ck_assert_double_le(error_of(t.max_logit, t.max_true, HEADS), TOLERANCE);
    ck_assert_double_le(error_of(t.dq, t.dq_true, q * D_QK), TOLERANCE);
    ck_assert_double_le(error_of(t.dk, t.dk_true, kv * D_QK), TOLERANCE);
    ck_assert_double_le(error_of(t.dv, t.dv_true, kv * D_V), TOLERANCE);
    ck_assert_double_le(error_of(t.dbias, t.dbias_true, t.bias_count), TOLERANCE);
    ck_assert_double_le(error_of(t.dsink, t.dsink_true, HEADS), TOLERANCE);
    trial_fini(&t);
}
END_TEST

// Bias elements that no visible pair uses are NaN here, and must not affect the results.
START_TEST(hidden_bias_is_not_read)
{
    struct trial t;
    trial_init(&t, &samples[2]);
    bool *used = zeros(t.bias_count, sizeof(bool));
    for (int head = 0; head < HEADS; head++)
        for (int64_t i = 0; i < t.s->queries; i++)
            for (int64_t j = 0; j < t.s->keys; j++)
                if (visible(&t, i, j))
                    used[bias_index(&t, head, i, j)] = true;
    for (int64_t i = 0; i < t.bias_count; i++)
        if (!used[i])
            dtype_store(t.s->dtype, t.bias_data, i, NAN);
    true_results(&t);
    run(&t);
    ck_assert_double_le(error_of(t.o, t.o_true, t.s->queries * HEADS * D_V), TOLERANCE);
    ck_assert_double_le(error_of(t.dbias, t.dbias_true, t.bias_count), TOLERANCE);
    free(used);
    trial_fini(&t);
}
END_TEST

START_TEST(maximum_of_two_lists)
{
    struct attention_backend *backend;
    struct error error;
    ck_assert_int_eq(backend_cpu.create(&backend, &error), STATUS_OK);
    float from[] = {1, -INFINITY, -3, 9}, to[] = {-INFINITY, -INFINITY, -2, 8};
    backend_cpu.max(backend, from, to, 3);
    ck_assert_float_eq(to[0], 1);
    ck_assert_float_eq(to[1], -INFINITY);
    ck_assert_float_eq(to[2], -2);
    ck_assert_float_eq(to[3], 8);
    float unwritten[] = {NAN, NAN, 1}, partly[] = {1, NAN, NAN};
    backend_cpu.max(backend, unwritten, partly, 3);
    for (int i = 0; i < 3; i++)
        ck_assert_float_nan(partly[i]);
    backend_cpu.destroy(backend);
}
END_TEST

static Suite *logits_suite(void)
{
    Suite *suite = suite_create("logits");
    TCase *tcase = tcase_create("kernels");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, kernels_follow_the_definition, 0, SAMPLE_COUNT);
    tcase_add_test(tcase, hidden_bias_is_not_read);
    tcase_add_test(tcase, maximum_of_two_lists);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(logits_suite());
}
