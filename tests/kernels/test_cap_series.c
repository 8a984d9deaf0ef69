// SPDX-License-Identifier: Apache-2.0
// Tests the polynomials for the tanh of a softcap, evaluated in fp32 as in the kernels. Within the
// reach of each series, the error of a logit is at most the tolerance that a verdict has for LSE.
#include <check.h>
#include <math.h>

#include "kernels/cuda/cap_series.h"
#include "tests/support/runner.h"

#define POINTS 4000

static const double caps[] = {0.001, 0.01, 0.3, 1.5, 7, 11.5, 30, 50, 300, 1000, 1e4, 1e6};
static const double scales[] = {1, 0.125, 0.0625, 1e-3, 40, -0.125};

static float series_of(const float *terms, int count, float z)
{
    float sum = terms[count - 1];
    for (int i = count - 2; i >= 0; i--)
        sum = fmaf(z, sum, terms[i]);
    return sum;
}

// A verdict's tolerance for an LSE with the value `logit`, in base e (judge/rules.h).
static double admitted(double cap, double logit)
{
    return 0x1p-24 * (128 + 8 * fabs(logit) + 4 * fmin(cap, 256));
}

// Compares x times a series with the exact capped logit at points of [-reach, reach]. A series with
// reach -1 is not used and not tested.
static void close_enough(const float *terms, int count, float reach, double scale, double cap)
{
    for (int i = -POINTS; i <= POINTS && reach >= 0; i++) {
        float x = reach * (float)i / POINTS;
        double right = cap * tanh(scale / cap * x);
        double got = (double)(x * series_of(terms, count, x * x)) / M_LOG2E;
        ck_assert_msg(fabs(got - right) <= admitted(cap, right),
                      "cap %g, scale %g, %d terms: %.9g at %.9g, where %.9g is right", cap, scale,
                      count, got, (double)x, right);
    }
}

static struct cap_series series_create(double scale, double cap)
{
    struct cap_series series;
    cap_series_set((float)(scale / cap), (float)(cap * M_LOG2E), &series);
    return series;
}

START_TEST(logits_are_close_enough)
{
    double cap = caps[_i];
    for (size_t i = 0; i < sizeof(scales) / sizeof(*scales); i++) {
        struct cap_series series = series_create(scales[i], cap);
        close_enough(series.close, 2, series.reach[0], scales[i], cap);
        close_enough(series.middle, 3, series.reach[1], scales[i], cap);
        close_enough(series.near, 6, series.reach[2], scales[i], cap);
    }
}
END_TEST

// The kernels round P times the slope to a 16-bit dtype. The more precise one, fp16, has a relative
// rounding error of up to 2^-12. The series may have a quarter of that.
START_TEST(slopes_are_close_enough)
{
    double cap = caps[_i];
    for (size_t s = 0; s < sizeof(scales) / sizeof(*scales); s++) {
        struct cap_series series = series_create(scales[s], cap);
        for (int i = -POINTS; i <= POINTS && series.reach[0] >= 0; i++) {
            float x = series.reach[0] * (float)i / POINTS, z = x * x;
            double t = tanh(scales[s] / cap * x), right = 1 - t * t;
            double got = fmaf(z, series_of(series.close_slope, 2, z), 1);
            ck_assert_double_le(fabs(got - right), 0x1p-12 / 4 * right);
        }
    }
}
END_TEST

// Scores q * k of normal inputs have a standard deviation of sqrt(d). The series of two terms
// reaches four of these deviations, so it suffices for most blocks.
START_TEST(the_shortest_series_reaches_four_deviations)
{
    for (int d = 64; d <= 128; d *= 2) {
        double scale = 1 / sqrt(d), deviation = sqrt(d);
        struct cap_series series = series_create(scale, 30);
        ck_assert_double_ge((double)series.reach[0], 4 * deviation);
        ck_assert_float_ge(series.reach[1], 2 * series.reach[0]);
        ck_assert_float_ge(series.reach[2], 1.5f * series.reach[1]);
    }
}
END_TEST

int main(void)
{
    const int caps_count = sizeof(caps) / sizeof(*caps);
    Suite *suite = suite_create("cap_series");
    TCase *series = tcase_create("series");
    tcase_add_loop_test(series, logits_are_close_enough, 0, caps_count);
    tcase_add_loop_test(series, slopes_are_close_enough, 0, caps_count);
    tcase_add_test(series, the_shortest_series_reaches_four_deviations);
    suite_add_tcase(suite, series);
    return runner_run(suite);
}
