// SPDX-License-Identifier: Apache-2.0
// Compares the inner loops with libm and plain loops, for each instruction set that this machine
// runs. Conversions and draws are tested in tests/judge/test_inputs.c.
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/vector.h"
#include "tests/support/runner.h"

#define COUNT_MAX 70 // several of the widest registers, with every remainder
#define SENTINEL  77.0f

static const struct vector_ops *variants[VECTOR_VARIANTS_MAX];
static int variant_count;

// Sets x[0..COUNT_MAX) to values of [from, to) in mixed order, and x[COUNT_MAX] to the sentinel.
static void fill(float *x, float from, float to)
{
    for (int i = 0; i < COUNT_MAX; i++)
        x[i] = from + (to - from) * (float)(i * 37 % COUNT_MAX) / COUNT_MAX;
    x[COUNT_MAX] = SENTINEL;
}

// The error of `got`, in units in the last place of `expected`.
static double ulps(float got, double expected)
{
    float nearest = (float)expected;
    double unit = (double)nextafterf(nearest, INFINITY) - nearest;
    return fabs(got - expected) / unit;
}

START_TEST(exp2_is_accurate)
{
    const struct vector_ops *v = variants[_i];
    enum { STEPS = 64, BATCH = 4096 };
    static float x[BATCH], y[BATCH];
    double worst = 0;
    for (int step = -126 * STEPS; step + BATCH <= 127 * STEPS; step += BATCH) {
        for (int i = 0; i < BATCH; i++)
            x[i] = y[i] = (float)(step + i + 0.37) / STEPS;
        v->exp2_sum(y, BATCH, 0);
        for (int i = 0; i < BATCH; i++)
            worst = fmax(worst, ulps(y[i], exp2(x[i])));
    }
    ck_assert_double_le(worst, 2);
}
END_TEST

START_TEST(exp2_at_the_edges)
{
    const struct vector_ops *v = variants[_i];
    float x[] = {0,     -INFINITY, -126,  -126.01f, -1e30f, INFINITY,       128,
                 1e30f, 127,       -0.5f, 0x1p-30f, 1,      -3.4028235e38f, NAN};
    const float y[] = {1, 0, 0x1p-126f, 0, 0, INFINITY, INFINITY, INFINITY, 0x1p127f};
    v->exp2_sum(x, 14, 0);
    for (int i = 0; i < 9; i++)
        ck_assert_float_eq(x[i], y[i]);
    ck_assert_float_eq_tol(x[9], sqrtf(0.5f), 1e-7f);
    ck_assert_float_eq(x[10], 1);
    ck_assert_float_eq(x[11], 2);
    ck_assert_float_eq(x[12], 0);
    ck_assert(isnan(x[13]));
}
END_TEST

START_TEST(nan_payloads_stay_nan)
{
    const struct vector_ops *v = variants[_i];
    float x[COUNT_MAX];
    for (int i = 0; i < COUNT_MAX; i++) {
        uint32_t bits = (i & 1 ? 0xff800001u : 0x7f800001u) + (uint32_t)(i * 12345);
        memcpy(&x[i], &bits, sizeof(bits));
    }
    float sum = v->exp2_sum(x, COUNT_MAX, 3);
    ck_assert(isnan(sum));
    for (int i = 0; i < COUNT_MAX; i++)
        ck_assert(isnan(x[i]));
}
END_TEST

// The sum is that of the stored results, and nothing beyond the count is written.
START_TEST(exp2_sum_of_any_count)
{
    const struct vector_ops *v = variants[_i];
    for (int count = 0; count <= COUNT_MAX; count++) {
        float x[COUNT_MAX + 1], y[COUNT_MAX + 1];
        fill(x, -30, 5);
        memcpy(y, x, sizeof(y));
        float sum = v->exp2_sum(y, count, 5);
        double expected = 0;
        int wrong = 0;
        for (int i = 0; i < count; i++) {
            expected += y[i];
            wrong += ulps(y[i], exp2((double)x[i] - 5)) > 14; // x - 5 is rounded first
        }
        wrong += memcmp(y + count, x + count, (size_t)(COUNT_MAX + 1 - count) * sizeof(float)) != 0;
        ck_assert_int_eq(wrong, 0);
        ck_assert_double_le(fabs(sum - expected), 1e-6 * expected);
    }
}
END_TEST

START_TEST(gradient_of_any_count)
{
    const struct vector_ops *v = variants[_i];
    for (int count = 0; count <= COUNT_MAX; count++) {
        float s[COUNT_MAX + 1], g[COUNT_MAX + 1], p[COUNT_MAX + 1], ds[COUNT_MAX + 1];
        fill(s, -20, 0);
        fill(g, -3, 3);
        memcpy(p, s, sizeof(p));
        memcpy(ds, g, sizeof(ds));
        v->exp2_gradient(p, ds, count, -0.25f, 0.75f);
        int wrong = 0;
        for (int i = 0; i < count; i++) {
            double expected = exp2((double)s[i] + 0.25);
            wrong += fabs(p[i] - expected) > 2e-6 * expected;
            wrong += fabs(ds[i] - expected * (g[i] - 0.75)) > 4e-6 * expected;
        }
        size_t rest = (size_t)(COUNT_MAX + 1 - count) * sizeof(float);
        wrong +=
            memcmp(p + count, s + count, rest) != 0 || memcmp(ds + count, g + count, rest) != 0;
        ck_assert_int_eq(wrong, 0);
    }
}
END_TEST

START_TEST(tanh_of_any_count)
{
    const struct vector_ops *v = variants[_i];
    for (int count = 0; count <= COUNT_MAX; count++) {
        float x[COUNT_MAX + 1], t[COUNT_MAX + 1], slope[COUNT_MAX + 1];
        fill(x, count % 2 ? -3 : -25, count % 2 ? 3 : 25);
        fill(slope, 5, 6);
        memcpy(t, x, sizeof(t));
        float last = slope[count];
        v->tanh(t, slope, count);
        int wrong = 0;
        for (int i = 0; i < count; i++) {
            double expected = tanh((double)x[i]);
            wrong += fabs(t[i] - expected) > 3e-7 * fabs(expected);
            double inverse = 1 / cosh((double)x[i]), derivative = inverse * inverse;
            wrong += fabs(slope[i] - derivative) > (3e-7 + 2e-7 * fabs(x[i])) * derivative;
        }
        wrong += memcmp(t + count, x + count, (size_t)(COUNT_MAX + 1 - count) * sizeof(float)) != 0;
        ck_assert_int_eq(wrong, 0);
        ck_assert_float_eq(slope[count], last);
    }
}
END_TEST

START_TEST(tanh_everywhere)
{
    const struct vector_ops *v = variants[_i];
    for (int i = -40000; i <= 40000; i++) {
        float x = (float)i * 0.0005f, t = x;
        v->tanh(&t, NULL, 1);
        double expected = tanh((double)x);
        if (fabs(t - expected) > 3e-7 * fabs(expected))
            ck_abort_msg("tanh(%a) is %a", (double)x, (double)t);
    }
    float edges[] = {0, -0.0f, 1e-30f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN};
    v->tanh(edges, NULL, 8);
    ck_assert(edges[0] == 0 && edges[1] == 0);
    ck_assert(edges[2] == 1e-30f);
    ck_assert(edges[3] == 1 && edges[4] == -1 && edges[5] == 1 && edges[6] == -1);
    ck_assert(isnan(edges[7]));
}
END_TEST

START_TEST(max_of_any_count)
{
    const struct vector_ops *v = variants[_i];
    float x[COUNT_MAX + 1];
    for (int count = 0; count <= COUNT_MAX; count++)
        for (int at = 0; at < count; at++) {
            fill(x, -9, -8);
            x[count] = 1; // beyond the count, must be ignored
            x[at] = -2;
            ck_assert_float_eq(v->max(x, count, -INFINITY), -2);
            x[at] = NAN;
            x[(at + 1) % count] = count > 1 ? -1 : NAN;
            ck_assert_float_eq(v->max(x, count, -4), count > 1 ? -1 : -4);
        }
    ck_assert_float_eq(v->max(x, 0, -INFINITY), -INFINITY);
}
END_TEST

// True if `got` is `expected` up to the rounding errors of a product and a sum, fused or not.
static bool near(float got, double expected)
{
    return fabs(got - expected) <= 3e-7 * (1 + fabs(expected));
}

START_TEST(rows_of_any_count)
{
    const struct vector_ops *v = variants[_i];
    for (int count = 0; count <= COUNT_MAX; count++) {
        float x[COUNT_MAX + 1], y[5][COUNT_MAX + 1];
        fill(x, -2, 2);
        for (int k = 0; k < 5; k++)
            for (int i = 0; i <= COUNT_MAX; i++)
                y[k][i] = sinf((float)i);
        v->scale(y[0], count, 1.7f);
        v->axpy(y[1], x, count, 0.3f);
        v->blend(y[2], 0.6f, x, -0.4f, count);
        v->add(y[3], x, count);
        v->multiply(y[4], x, count);
        double dot = 0;
        int wrong = 0;
        for (int i = 0; i <= COUNT_MAX; i++) {
            double before = sinf((float)i);
            wrong += i < count ? !near(y[0][i], before * 1.7f) : y[0][i] != (float)before;
            wrong += i < count ? !near(y[1][i], before + 0.3f * x[i]) : y[1][i] != (float)before;
            wrong +=
                i < count ? !near(y[2][i], before * 0.6f - 0.4f * x[i]) : y[2][i] != (float)before;
            wrong += i < count ? y[3][i] != (float)before + x[i] : y[3][i] != (float)before;
            wrong += i < count ? !near(y[4][i], before * x[i]) : y[4][i] != (float)before;
            dot += i < count ? before * x[i] : 0;
        }
        float sine[COUNT_MAX + 1];
        for (int i = 0; i <= COUNT_MAX; i++)
            sine[i] = sinf((float)i);
        ck_assert_int_eq(wrong, 0);
        ck_assert_double_le(fabs(v->dot(x, sine, count) - dot), 1e-5);
    }
}
END_TEST

START_TEST(the_best_comes_first)
{
    ck_assert_ptr_eq(vector_best(), variants[0]);
    ck_assert_str_eq(variants[variant_count - 1]->name, "plain");
}
END_TEST

static Suite *vector_suite(void)
{
    Suite *suite = suite_create("vector");
    TCase *tcase = tcase_create("loops");
    vector_list(variants);
    while (variants[variant_count])
        variant_count++;
    tcase_add_test(tcase, the_best_comes_first);
    tcase_add_loop_test(tcase, exp2_is_accurate, 0, variant_count);
    tcase_add_loop_test(tcase, exp2_at_the_edges, 0, variant_count);
    tcase_add_loop_test(tcase, nan_payloads_stay_nan, 0, variant_count);
    tcase_add_loop_test(tcase, exp2_sum_of_any_count, 0, variant_count);
    tcase_add_loop_test(tcase, gradient_of_any_count, 0, variant_count);
    tcase_add_loop_test(tcase, tanh_of_any_count, 0, variant_count);
    tcase_add_loop_test(tcase, tanh_everywhere, 0, variant_count);
    tcase_add_loop_test(tcase, max_of_any_count, 0, variant_count);
    tcase_add_loop_test(tcase, rows_of_any_count, 0, variant_count);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    return runner_run(vector_suite());
}
