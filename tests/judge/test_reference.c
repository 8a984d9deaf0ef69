// SPDX-License-Identifier: Apache-2.0
// The reference compared with a second implementation (tests/judge/dense.h). Its gradients are also
// compared with finite differences of that implementation's forward pass.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/cpu/reference.h"
#include "tests/judge/dense.h"
#include "tests/support/cases.h"
#include "tests/support/runner.h"

// fp64 on both sides; only the order of sums differs.
#define TOLERANCE 1e-12

// ---- comparison ---------------------------------------------------------------------------------

// The largest difference and the largest expected magnitude of a tensor. Infinities must be equal.
struct worst {
    double error, magnitude;
};

static void worst_add(struct worst *w, double got, double expected)
{
    if (!isfinite(expected) || !isfinite(got)) {
        if (!(got == expected))
            w->error = INFINITY;
        return;
    }
    w->error = fmax(w->error, fabs(got - expected));
    w->magnitude = fmax(w->magnitude, fabs(expected));
}

static double worst_relative(const struct worst *w)
{
    return w->error == 0 ? 0 : w->error / w->magnitude;
}

// The query side of one head, positions [begin, end).
static void compare_queries(struct dense *t, int sequence, int head, int64_t begin, int64_t end)
{
    size_t n = (size_t)(end - begin) + 1;
    double *out = malloc(n * (size_t)t->dv * sizeof(double)), *lse = malloc(n * sizeof(double));
    double *delta = malloc(n * sizeof(double)), *d_q = malloc(n * (size_t)t->dk * sizeof(double));
    double *d_bias = dense_zeros((end - begin) * t->sk), *terms = dense_zeros(end - begin);
    const struct reference_sums sums = {.dbias = d_bias, .dbias_stride = t->sk};
    struct worst o = {0}, l = {0}, d = {0}, g = {0}, b = {0}, r = {0};
    struct error error;
    ck_assert_int_eq(reference_queries(&t->c, sequence, head, begin, end, out, lse, delta, d_q,
                                       terms, &sums, &error),
                     STATUS_OK);
    for (int64_t at = 0; at < (end - begin) * t->sk; at++)
        worst_add(&b, d_bias[at], dense_pair(t, t->d_bias, begin, 0, head)[at]);
    ck_assert_double_le(worst_relative(&b), TOLERANCE);
    for (int64_t i = begin; i < end; i++) {
        worst_add(&l, lse[i - begin], t->lse[head * t->sq + i]);
        worst_add(&d, delta[i - begin], t->delta[head * t->sq + i]);
        worst_add(&r, terms[i - begin], sqrt(t->terms_q[head * t->sq + i]));
        for (int e = 0; e < t->dv; e++)
            worst_add(&o, out[(i - begin) * t->dv + e], dense_row(t->out, i, t->h, head, t->dv)[e]);
        for (int e = 0; e < t->dk; e++)
            worst_add(&g, d_q[(i - begin) * t->dk + e], dense_row(t->d_q, i, t->h, head, t->dk)[e]);
    }
    ck_assert_double_le(worst_relative(&o), TOLERANCE);
    ck_assert_double_le(worst_relative(&l), TOLERANCE);
    ck_assert_double_le(worst_relative(&d), TOLERANCE);
    ck_assert_double_le(worst_relative(&g), TOLERANCE);
    ck_assert_double_le(worst_relative(&r), TOLERANCE);
    free(out);
    free(lse);
    free(delta);
    free(d_q);
    free(d_bias);
    free(terms);
}

// The sums over all queries of a head, in two calls.
static void compare_sums(struct dense *t, int sequence, int head)
{
    size_t n = (size_t)t->sq + 1;
    double *out = malloc(n * (size_t)t->dv * sizeof(double)), *lse = malloc(n * sizeof(double));
    double *delta = malloc(n * sizeof(double)), *d_q = malloc(n * (size_t)t->dk * sizeof(double));
    double max_logit = -INFINITY, d_sink = 0, squares = 0, *d_bias = dense_zeros(t->sk);
    bool sinks = t->c.softmax == SOFTMAX_LEARNABLE;
    const struct reference_sums sums = {.max_logit = &max_logit,
                                        .dsink = sinks ? &d_sink : NULL,
                                        .dsink_squares = &squares,
                                        .dbias = d_bias};
    struct worst m = {0}, s = {0}, b = {0};
    struct error error;
    for (int part = 0; part < 2; part++)
        ck_assert_int_eq(reference_queries(&t->c, sequence, head, part * (t->sq / 3),
                                           part == 0 ? t->sq / 3 : t->sq, out, lse, delta, d_q,
                                           NULL, &sums, &error),
                         STATUS_OK);
    worst_add(&m, max_logit, t->max_logit[head]);
    if (sinks)
        worst_add(&s, d_sink, t->d_sink[head]);
    s.magnitude = sqrt(squares);
    for (int64_t j = 0; j < t->sk; j++) {
        double column = 0;
        for (int64_t i = 0; i < t->sq; i++) {
            column += *dense_pair(t, t->d_bias, i, j, head);
            b.magnitude = fmax(b.magnitude, fabs(*dense_pair(t, t->d_bias, i, j, head)));
        }
        worst_add(&b, d_bias[j], column);
    }
    ck_assert_double_le(worst_relative(&m), TOLERANCE);
    ck_assert_double_le(worst_relative(&s), TOLERANCE);
    ck_assert_double_le(worst_relative(&b), TOLERANCE);
    free(out);
    free(lse);
    free(delta);
    free(d_q);
    free(d_bias);
}

static void compare_keys(struct dense *t, int sequence, int kv, int64_t begin, int64_t end)
{
    size_t n = (size_t)(end - begin) + 1;
    double *d_k = malloc(n * (size_t)t->dk * sizeof(double));
    double *d_v = malloc(n * (size_t)t->dv * sizeof(double));
    int64_t group = kv * (t->h / t->hk) * t->sq;
    double *terms = dense_zeros(end - begin);
    struct worst k = {0}, v = {0}, r = {0};
    struct error error;
    ck_assert_int_eq(reference_keys(&t->c, sequence, kv, begin, end, t->lse + group,
                                    t->delta + group, d_k, d_v, terms, &error),
                     STATUS_OK);
    for (int64_t j = begin; j < end; j++) {
        worst_add(&r, terms[j - begin], sqrt(t->terms_k[kv * t->sk + j]));
        for (int e = 0; e < t->dk; e++)
            worst_add(&k, d_k[(j - begin) * t->dk + e], dense_row(t->d_k, j, t->hk, kv, t->dk)[e]);
        for (int e = 0; e < t->dv; e++)
            worst_add(&v, d_v[(j - begin) * t->dv + e], dense_row(t->d_v, j, t->hk, kv, t->dv)[e]);
    }
    ck_assert_double_le(worst_relative(&k), TOLERANCE);
    ck_assert_double_le(worst_relative(&v), TOLERANCE);
    ck_assert_double_le(worst_relative(&r), TOLERANCE);
    free(d_k);
    free(d_v);
    free(terms);
}

struct sample {
    int64_t sq, sk;
    enum case_mask mask;
    int64_t left, right;
    int h, hk, dk, dv;
    double softcap;
    enum case_softmax softmax; // 0: vanilla
    enum case_bias bias;       // 0: none
    int32_t lengths[4];        // of two sequences, q then kv; all 0: none
};

#define FREE WINDOW_UNBOUNDED
static const struct sample samples[] = {
    {1, 1, MASK_NONE, FREE, FREE, 1, 1, 1, 1, .softcap = 0},
    {5, 9, MASK_NONE, FREE, FREE, 2, 2, 7, 3, .softcap = 0},
    {70, 65, MASK_NONE, FREE, FREE, 4, 2, 16, 24, .softcap = 0},
    {150, 150, MASK_CAUSAL, FREE, FREE, 2, 1, 33, 8, .softcap = 0},
    {40, 90, MASK_CAUSAL, FREE, FREE, 2, 2, 8, 8, .softcap = 0},
    {90, 40, MASK_CAUSAL, FREE, FREE, 2, 2, 8, 8, .softcap = 0},
    {40, 90, MASK_CAUSAL_BOTTOM_RIGHT, FREE, FREE, 2, 2, 8, 8, .softcap = 0},
    {200, 40, MASK_CAUSAL_BOTTOM_RIGHT, FREE, FREE, 2, 2, 8, 8,
     .softcap = 0}, // 160 queries see nothing
    {130, 130, MASK_NONE, 10, 3, 2, 2, 8, 8, .softcap = 0},
    {130, 130, MASK_CAUSAL, 10, FREE, 2, 2, 8, 8, .softcap = 0},
    {130, 30, MASK_NONE, 5, 0, 2, 2, 8, 8, .softcap = 0}, // the last queries see nothing
    {130, 30, MASK_NONE_BOTTOM_RIGHT, 5, 0, 2, 2, 8, 8, .softcap = 0}, // the first see nothing
    {30, 130, MASK_NONE_BOTTOM_RIGHT, 5, 9, 2, 2, 8, 8, .softcap = 0},
    {30, 130, MASK_CAUSAL_BOTTOM_RIGHT, 7, 0, 2, 2, 8, 8, .softcap = 0},
    {20, 20, MASK_CAUSAL, 0, 0, 6, 3, 8, 8, .softcap = 0}, // each its own key
    {4, 0, MASK_NONE, FREE, FREE, 2, 2, 8, 8, .softcap = 0},
    {0, 4, MASK_CAUSAL, FREE, FREE, 2, 2, 8, 8, .softcap = 0},
    {150, 140, MASK_CAUSAL, FREE, FREE, 4, 2, 8, 8, .softcap = 3},
    {70, 65, MASK_NONE, FREE, FREE, 2, 1, 8, 8, .softmax = SOFTMAX_OFF_BY_ONE},
    {90, 30, MASK_NONE, 5, 0, 4, 2, 8, 8, .softmax = SOFTMAX_LEARNABLE},
    {40, 50, MASK_CAUSAL, FREE, FREE, 4, 2, 8, 8, .bias = BIAS_BHSS},
    {80, 50, MASK_CAUSAL_BOTTOM_RIGHT, FREE, FREE, 4, 2, 8, 8, .softcap = 2,
     .softmax = SOFTMAX_LEARNABLE, .bias = BIAS_1H1S},
    {100, 90, MASK_CAUSAL, FREE, FREE, 2, 2, 8, 8, .lengths = {100, 7, 33, 90}},
    {100, 90, MASK_CAUSAL_BOTTOM_RIGHT, 20, FREE, 2, 2, 8, 8, .lengths = {80, 0, 70, 90}},
    {100,
     90,
     MASK_CAUSAL_BOTTOM_RIGHT,
     20,
     0,
     2,
     2,
     8,
     8,
     5,
     SOFTMAX_OFF_BY_ONE,
     BIAS_1HSS,
     {61, 30, 70, 1}},
};
#define SAMPLE_COUNT ((int)(sizeof(samples) / sizeof(samples[0])))

static struct cp_case sample_case(const struct sample *s)
{
    struct cp_case c;
    case_init(&c);
    c.batch = 2;
    c.seqlen_q = s->sq;
    c.seqlen_kv = s->sk;
    c.mask = s->mask;
    c.window_left = s->left;
    c.window_right = s->right;
    c.heads = s->h;
    c.kv_heads = s->hk;
    c.head_dim_qk = s->dk;
    c.head_dim_v = s->dv;
    c.softcap = s->softcap;
    c.softmax = s->softmax ? s->softmax : SOFTMAX_VANILLA;
    c.bias = s->bias ? s->bias : BIAS_NONE;
    if (s->lengths[0] + s->lengths[1] > 0) {
        case_list_set(&c, LIST_LENGTHS_Q, s->lengths, 2);
        case_list_set(&c, LIST_LENGTHS_KV, s->lengths + 2, 2);
    }
    return c;
}

START_TEST(agrees_with_loops)
{
    struct cp_case c = sample_case(&samples[_i]);
    for (int sequence = 0; sequence < 2; sequence++) {
        struct dense t;
        dense_init(&t, &c, sequence);
        dense_forward(&t);
        dense_backward(&t);
        dense_max_logits(&t);
        for (int head = 0; head < t.h; head++) {
            compare_sums(&t, sequence, head);
            compare_queries(&t, sequence, head, 0, t.sq);
            compare_queries(&t, sequence, head, t.sq / 3, t.sq / 2);
            compare_queries(&t, sequence, head, t.sq, t.sq);
        }
        for (int kv = 0; kv < t.hk; kv++) {
            compare_keys(&t, sequence, kv, 0, t.sk);
            compare_keys(&t, sequence, kv, t.sk / 3, t.sk / 2);
            compare_keys(&t, sequence, kv, t.sk, t.sk);
        }
        dense_fini(&t);
    }
}
END_TEST

// Sequences of different lengths, one of them empty on one side, with masks that depend on the
// lengths.
START_TEST(lengths_end_where_they_say)
{
    struct cp_case c = cases_thd("40,7,0,33", "21,7,5,70", "48,7,2,33", "");
    c.batch = 4;
    c.seqlen_q = c.seqlen_kv = 80;
    c.heads = c.kv_heads = 1;
    c.head_dim_qk = c.head_dim_v = 8;
    c.mask = (enum case_mask)(MASK_NONE + _i);
    c.window_left = 30;
    for (int sequence = 0; sequence < 4; sequence++) {
        struct dense t;
        dense_init(&t, &c, sequence);
        dense_forward(&t);
        dense_backward(&t);
        compare_queries(&t, sequence, 0, 0, t.sq);
        compare_keys(&t, sequence, 0, 0, t.sk);
        dense_fini(&t);
    }
}
END_TEST

// Sequence, inputs, scale and dtype each change the results of the reference.
START_TEST(scale_dtype_and_inputs_matter)
{
    struct sample s = {3, 4, MASK_NONE, FREE, FREE, 1, 1, 4, 4, .softcap = 0};
    struct cp_case c = sample_case(&s);
    double out[5][12], lse[3];
    struct error error;
    ck_assert_int_eq(reference_queries(&c, 0, 0, 0, 3, out[0], lse, NULL, NULL, NULL, NULL, &error),
                     STATUS_OK);
    ck_assert_int_eq(reference_queries(&c, 1, 0, 0, 3, out[1], lse, NULL, NULL, NULL, NULL, &error),
                     STATUS_OK);
    c.inputs = INPUTS_TE;
    ck_assert_int_eq(reference_queries(&c, 0, 0, 0, 3, out[2], lse, NULL, NULL, NULL, NULL, &error),
                     STATUS_OK);
    c.scale = 1;
    ck_assert_int_eq(reference_queries(&c, 0, 0, 0, 3, out[3], lse, NULL, NULL, NULL, NULL, &error),
                     STATUS_OK);
    c.dtype = DTYPE_FP32;
    ck_assert_int_eq(reference_queries(&c, 0, 0, 0, 3, out[4], lse, NULL, NULL, NULL, NULL, &error),
                     STATUS_OK);
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < a; b++)
            ck_assert_mem_ne(out[a], out[b], sizeof(out[a]));
}
END_TEST

// RMS of out, dQ, dK and dV of a sequence with one head.
static void sequence_rms(const struct cp_case *c, int sequence, double rms[4])
{
    int64_t n = case_length(c, SIDE_Q, sequence), dim = c->head_dim_v;
    double *results = calloc((size_t)(n * (4 * dim + 2)), sizeof(double));
    double *lse = results + 4 * n * dim, *delta = lse + n;
    struct error error;
    ck_assert_int_eq(reference_queries(c, sequence, 0, 0, n, results, lse, delta, results + n * dim,
                                       NULL, NULL, &error),
                     STATUS_OK);
    ck_assert_int_eq(reference_keys(c, sequence, 0, 0, n, lse, delta, results + 2 * n * dim,
                                    results + 3 * n * dim, NULL, &error),
                     STATUS_OK);
    for (int tensor = 0; tensor < 4; tensor++) {
        double squares = 0;
        for (int64_t i = 0; i < n * dim; i++)
            squares += results[tensor * n * dim + i] * results[tensor * n * dim + i];
        rms[tensor] = sqrt(squares / (double)(n * dim));
    }
    free(results);
}

// With sharp inputs the results of a short and of a long sequence have about the same size, so the
// unit of a chunk is right for each of its sequences (judge/rules.h). With TE's inputs the sizes
// differ.
START_TEST(sharp_results_do_not_depend_on_the_length)
{
    struct cp_case c = cases_thd("32,1024", "", "", "");
    c.seqlen_q = c.seqlen_kv = 1024;
    c.heads = c.kv_heads = 1;
    c.head_dim_qk = c.head_dim_v = 64;
    for (int inputs = INPUTS_SHARP; inputs <= INPUTS_TE; inputs++)
        for (int mask = MASK_NONE; mask <= MASK_CAUSAL; mask++) {
            double rms[2][4];
            c.inputs = (enum case_inputs)inputs;
            c.mask = (enum case_mask)mask;
            for (int sequence = 0; sequence < 2; sequence++)
                sequence_rms(&c, sequence, rms[sequence]);
            for (int tensor = 0; tensor < 4; tensor++) {
                double ratio = rms[0][tensor] / rms[1][tensor];
                ck_assert_msg(inputs == INPUTS_SHARP ? ratio > 0.5 && ratio < 2 : ratio > 2.5,
                              "%d %d %d: %g", inputs, mask, tensor, ratio);
            }
        }
}
END_TEST

// With so many keys the scores of a whole block exceed the memory bound, so blocks get smaller.
START_TEST(many_keys)
{
    struct sample s = {70, 40000, MASK_CAUSAL_BOTTOM_RIGHT, FREE, FREE, 1, 1, 4, 4, .softcap = 0};
    struct cp_case c = sample_case(&s);
    struct dense t;
    dense_init(&t, &c, 0);
    dense_forward(&t);
    dense_backward(&t);
    compare_queries(&t, 0, 0, 0, t.sq);
    compare_keys(&t, 0, 0, 0, t.sk);
    dense_fini(&t);
}
END_TEST

// ---- finite differences -------------------------------------------------------------------------

static double loss(struct dense *t)
{
    dense_forward(t);
    return dense_product(t->d_out, t->out, (int)(t->sq * t->h * t->dv));
}

// Largest difference between a gradient and central differences. The error of central differences
// is about the third derivative times the squared step, plus 1e-16 / step.
static double slope_error(struct dense *t, double *values, const double *gradient, int64_t count)
{
    const double step = 1e-5;
    double worst = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = values[i];
        values[i] = value + step;
        double above = loss(t);
        values[i] = value - step;
        double below = loss(t);
        values[i] = value;
        double error = fabs(gradient[i] - (above - below) / (2 * step));
        worst = isnan(error) ? INFINITY : fmax(worst, error);
    }
    return worst;
}

// Fills the gradients with those of the reference.
static void reference_gradients(struct dense *t)
{
    double lse[4 * 5], delta[4 * 5], out[5 * 3], squares = 0;
    bool sinks = t->c.softmax == SOFTMAX_LEARNABLE;
    struct error error;
    for (int head = 0; head < t->h; head++) {
        double d_q[5 * 3];
        const struct reference_sums sums = {.dsink = sinks ? t->d_sink + head : NULL,
                                            .dsink_squares = &squares,
                                            .dbias = dense_pair(t, t->d_bias, 0, 0, head),
                                            .dbias_stride = t->sk};
        ck_assert_int_eq(reference_queries(&t->c, 0, head, 0, t->sq, out, lse + head * t->sq,
                                           delta + head * t->sq, d_q, NULL, &sums, &error),
                         STATUS_OK);
        for (int64_t i = 0; i < t->sq * t->dk; i++)
            dense_row(t->d_q, i / t->dk, t->h, head, t->dk)[i % t->dk] = d_q[i];
    }
    for (int kv = 0; kv < t->hk; kv++) {
        int64_t group = kv * (t->h / t->hk) * t->sq;
        double d_k[4 * 3], d_v[4 * 3];
        ck_assert_int_eq(reference_keys(&t->c, 0, kv, 0, t->sk, lse + group, delta + group, d_k,
                                        d_v, NULL, &error),
                         STATUS_OK);
        for (int64_t i = 0; i < t->sk * t->dk; i++)
            dense_row(t->d_k, i / t->dk, t->hk, kv, t->dk)[i % t->dk] = d_k[i];
        for (int64_t i = 0; i < t->sk * t->dv; i++)
            dense_row(t->d_v, i / t->dv, t->hk, kv, t->dv)[i % t->dv] = d_v[i];
    }
}

START_TEST(gradients_are_slopes)
{
    static const struct sample tiny[] = {
        {3, 4, MASK_NONE, FREE, FREE, 2, 1, 3, 2, .softcap = 0},
        {4, 4, MASK_CAUSAL, FREE, FREE, 2, 2, 2, 3, .softcap = 0},
        {5, 3, MASK_CAUSAL_BOTTOM_RIGHT, 1, FREE, 4, 2, 2, 2, .softcap = 0},
        {4, 4, MASK_CAUSAL, FREE, FREE, 2, 1, 3, 2, .softcap = 1.5, .softmax = SOFTMAX_LEARNABLE,
         .bias = BIAS_1HSS}};
    struct cp_case c = sample_case(&tiny[_i]);
    struct dense t;
    dense_init(&t, &c, 0);
    reference_gradients(&t);
    double q_error = slope_error(&t, t.q, t.d_q, t.sq * t.h * t.dk);
    double k_error = slope_error(&t, t.k, t.d_k, t.sk * t.hk * t.dk);
    double v_error = slope_error(&t, t.v, t.d_v, t.sk * t.hk * t.dv);
    double bias_error = slope_error(&t, t.bias, t.d_bias, t.h * t.sq * t.sk);
    double sink_error = c.softmax == SOFTMAX_LEARNABLE ? slope_error(&t, t.sink, t.d_sink, t.h) : 0;
    dense_fini(&t);
    ck_assert_double_le(bias_error, 1e-7);
    ck_assert_double_le(sink_error, 1e-7);
    ck_assert_double_le(q_error, 1e-7);
    ck_assert_double_le(k_error, 1e-7);
    ck_assert_double_le(v_error, 1e-7);
}
END_TEST

static Suite *reference_suite(void)
{
    Suite *suite = suite_create("reference");
    TCase *tcase = tcase_create("reference");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, agrees_with_loops, 0, SAMPLE_COUNT);
    tcase_add_loop_test(tcase, lengths_end_where_they_say, 0, 4);
    tcase_add_test(tcase, scale_dtype_and_inputs_matter);
    tcase_add_test(tcase, sharp_results_do_not_depend_on_the_length);
    tcase_add_test(tcase, many_keys);
    tcase_add_loop_test(tcase, gradients_are_slopes, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(reference_suite());
}
