// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cap_series.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

// Largest error that a short series may add to a logit in base 2, and so to the LSE: nine tenths of
// the tolerance that a verdict has for LSE in fp32, 2^-24 * (128 + 4 * min(softcap, 256)) in base
// e. The rest is for rounding.
static double error_admitted(double cap)
{
    return 0.9 * 0x1p-24 * (128 * M_LOG2E + 4 * fmin(cap, 256 * M_LOG2E));
}

// tanh(x) / x as a Taylor series in x^2, which converges well up to TAYLOR_REACH. Within
// CLOSE_REACH, 1 - x^2 + 2/3 x^4 differs from 1 - tanh^2 by less than 3e-5.
#define TAYLOR       7
#define TAYLOR_REACH 0.5
#define CLOSE_REACH  0.2
static const double taylor[TAYLOR] = {1,          -1. / 3,         2. / 15,         -17. / 315,
                                      62. / 2835, -1382. / 155925, 21844. / 6081075};

// Removes the last of `count` terms of x times a series in x^2: subtracts a multiple of the
// Chebyshev polynomial of that degree, which spreads the error evenly over |x| <= reach.
static void shorten(double *terms, int count, double reach)
{
    const int n = count - 1, degree = 2 * n + 1;
    double less = terms[n];
    for (int i = 0; i < n; i++) {
        int power = degree - 2 * i;
        less *= -reach * reach * power * (power - 1) / (4. * (i + 1) * (degree - i - 1));
        terms[n - i - 1] -= less;
    }
}

static bool is_normal(double x)
{
    return fabs(x) >= FLT_MIN && fabs(x) <= FLT_MAX;
}

// Turns a series of tanh(x) / x for |x| <= reach into one of cap * tanh(factor * x) / x. Returns
// the largest |x| of the new series, or -1 if fp32 cannot hold one of its terms or the square of
// that |x|.
static float scale(double factor, double cap, const double *terms, int count, double reach,
                   float *scaled)
{
    const double far = reach / fabs(factor);
    bool normal = is_normal(far * far);
    double by = cap * factor;
    for (int i = 0; i < count; i++, by *= factor * factor) {
        normal = normal && is_normal(terms[i] * by);
        scaled[i] = (float)(terms[i] * by);
    }
    return normal ? (float)far : -1;
}

// Sets a series of cap * tanh(factor * x) / x with `count` terms and an error of at most
// error_admitted(). The argument of tanh is at most `farthest`. Returns what scale() returns.
static float shorten_to(int count, double factor, double cap, double farthest, float *terms)
{
    const double first_left = cap * fabs(taylor[count]) / pow(4, count);
    const double far = pow(error_admitted(cap) / first_left, 1. / (2 * count + 1));
    const double reach = fmin(far, farthest);
    double left[TAYLOR];
    memcpy(left, taylor, sizeof(left));
    for (int terms_left = TAYLOR; terms_left > count; terms_left--)
        shorten(left, terms_left, reach);
    return scale(factor, cap, left, count, reach, terms);
}

void cap_series_set(float factor, float cap, struct cap_series *series)
{
    static const double near[] = {CAP_NEAR_SERIES};
    series->reach[0] = shorten_to(2, factor, cap, CLOSE_REACH, series->close);
    series->reach[1] = shorten_to(3, factor, cap, TAYLOR_REACH, series->middle);
    series->reach[2] = scale(factor, cap, near, 6, CAP_NEAR_REACH, series->near);
    const double square = (double)factor * factor;
    series->close_slope[0] = (float)-square;
    series->close_slope[1] = (float)(2. / 3 * square * square);
}
