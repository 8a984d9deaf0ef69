// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/loops.h"

#include <math.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/rules.h"

// Number of elements that are summed in fp32 before the sum is added in fp64.
#define SHORT_SUM 512

#define LANES  8
#define INLINE static inline __attribute__((always_inline))

int64_t loop_padded(int64_t count)
{
    return (count + LOOP_BLOCK - 1) / LOOP_BLOCK * LOOP_BLOCK;
}

float loop_max(const float *x, int64_t begin, int64_t end)
{
    float lanes[LANES], max = -INFINITY;
    for (int j = 0; j < LANES; j++)
        lanes[j] = max;
    for (; begin + LANES <= end; begin += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] = x[begin + j] > lanes[j] ? x[begin + j] : lanes[j];
    for (; begin < end; begin++)
        max = x[begin] > max ? x[begin] : max;
    for (int j = 0; j < LANES; j++)
        max = lanes[j] > max ? lanes[j] : max;
    return max;
}

// exp(x) = 2^n e^r with n an integer and |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer
// and leaves it in the low bits. ln 2 is split in two parts to make n ln 2 exact enough for |n| <
// 2^8.
INLINE float exp_of(float x)
{
    const float round = 0x1.8p23f;
    uint32_t tiny = 0 - (uint32_t)(x < -87.0f), n_bits, power_bits;
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float shifted = x * 0x1.715476p0f + round, n = shifted - round, power;
    float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float p = 0x1.6c16c2p-10f;
    p = p * r + 0x1.111112p-7f;
    p = p * r + 0x1.555556p-5f;
    p = p * r + 0x1.555556p-3f;
    p = p * r + 0.5f;
    p = p * r * r + r + 1.0f;
    memcpy(&n_bits, &shifted, sizeof(n_bits));
    power_bits = ((n_bits << 23) + 0x3f800000) & ~tiny;
    memcpy(&power, &power_bits, sizeof(power));
    return p * power;
}

static void exp_block(float *restrict x, float shift, float base)
{
    for (int j = 0; j < LOOP_BLOCK; j++)
        x[j] = exp_of((x[j] - shift) * base);
}

INLINE double sum_of(const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t first = 0; first < count; first += SHORT_SUM) {
        int64_t end = count - first < SHORT_SUM ? count : first + SHORT_SUM;
        float lanes[LANES] = {0};
        for (int64_t i = first; i < end; i += LANES)
            for (int j = 0; j < LANES; j++)
                lanes[j] += x[i + j];
        for (int j = 0; j < LANES; j++)
            sum += lanes[j];
    }
    return sum;
}

// Blocks that overlap the range are computed as a whole. Their elements outside of the range are
// undefined, so they are set to -inf first and to 0 afterwards.
double loop_exp(float *x, int64_t begin, int64_t end, int64_t padded, float shift, float base)
{
    int64_t first = begin / LOOP_BLOCK * LOOP_BLOCK, behind = loop_padded(end);
    if (begin >= end) {
        memset(x, 0, (size_t)padded * sizeof(float));
        return 0;
    }
    for (int64_t i = first; i < begin; i++)
        x[i] = -INFINITY;
    for (int64_t i = end; i < behind; i++)
        x[i] = -INFINITY;
    for (int64_t i = first; i < behind; i += LOOP_BLOCK)
        exp_block(x + i, shift, base);
    for (int64_t i = first; i < begin; i++)
        x[i] = 0;
    for (int64_t i = end; i < behind; i++)
        x[i] = 0;
    memset(x, 0, (size_t)first * sizeof(float));
    memset(x + behind, 0, (size_t)(padded - behind) * sizeof(float));
    return sum_of(x + first, behind - first);
}

static void subtract_block(const float *restrict x, const float *restrict y, float *restrict z)
{
    for (int j = 0; j < LOOP_BLOCK; j++)
        z[j] = x[j] - y[j];
}

void loop_split(enum case_dtype dtype, const float *x, float *head, float *rest, int64_t padded)
{
    for (int64_t i = 0; i < padded; i += LOOP_BLOCK) {
        memcpy(head + i, x + i, LOOP_BLOCK * sizeof(float));
        dtype_round(dtype, head + i, LOOP_BLOCK);
        if (rest)
            subtract_block(x + i, head + i, rest + i);
    }
}

static void scale_block(float *x, float factor)
{
    for (int j = 0; j < LOOP_BLOCK; j++)
        x[j] *= factor;
}

void loop_scale(float *x, float factor, int64_t padded)
{
    for (int64_t i = 0; i < padded; i += LOOP_BLOCK)
        scale_block(x + i, factor);
}

static void multiply_twin_block(const float *restrict p, const float *restrict slope,
                                float cap_error, float *restrict z)
{
    for (int j = 0; j < LOOP_BLOCK; j++)
        z[j] = p[j] * rules_cap_slope(slope[j], cap_error, j % 2);
}

// `p` includes the slope.
static void gradient_block(const float *restrict p, const float *restrict dp, float delta,
                           float *restrict ds)
{
    for (int j = 0; j < LOOP_BLOCK; j++)
        ds[j] = p[j] * (dp[j] - delta);
}

static void squares_block(const float *restrict p, const float *restrict dp, float constant,
                          float *restrict squares)
{
    for (int j = 0; j < LOOP_BLOCK; j++)
        squares[j] = p[j] * p[j] * (dp[j] * dp[j] + constant);
}

static void multiply_block(const float *restrict x, const float *restrict y, float *restrict z)
{
    for (int j = 0; j < LOOP_BLOCK; j++)
        z[j] = x[j] * y[j];
}

static void add_block(float *restrict sum, const float *restrict x)
{
    for (int j = 0; j < LOOP_BLOCK; j++)
        sum[j] += x[j];
}

double loop_gradient(const struct loop_gradient *g, const float *dp, float *head, float *rest,
                     float *terms, int64_t padded)
{
    double sum = 0;
    for (int64_t i = 0; i < padded; i += LOOP_BLOCK) {
        float with_slope[LOOP_BLOCK], twin[LOOP_BLOCK], squares[LOOP_BLOCK], exact[LOOP_BLOCK];
        const float *p = g->p + i, *p_twin = p;
        if (g->slope) {
            multiply_block(p, g->slope + i, with_slope);
            multiply_twin_block(p, g->slope + i, g->cap_error, twin);
            p = with_slope;
            p_twin = twin;
        }
        squares_block(p_twin, dp + i, g->delta * g->delta + g->products, squares);
        sum += sum_of(squares, LOOP_BLOCK);
        if (terms)
            add_block(terms + i, squares);
        gradient_block(p_twin, dp + i, g->delta_twin, head + i);
        dtype_round(g->dtype, head + i, LOOP_BLOCK);
        if (!rest)
            continue;
        gradient_block(p, dp + i, g->delta, exact);
        subtract_block(exact, head + i, rest + i);
    }
    return sum;
}

void loop_add_gradient(const float *p, const float *dp, float delta, double *sum, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += p[i] * (dp[i] - delta);
}

double loop_terms(const float *p, const float *dp, float delta, float products, int64_t count)
{
    double sum = 0, constant = (double)delta * delta + products;
    for (int64_t i = 0; i < count; i++)
        sum += (double)p[i] * p[i] * ((double)dp[i] * dp[i] + constant);
    return sum;
}

double loop_dot(const float *x, const double *y, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * y[i];
    return sum;
}
