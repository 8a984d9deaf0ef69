// SPDX-License-Identifier: Apache-2.0
// The inner loops of one variant. A file vector_<name>.c defines
//     VECTOR_BYTES           size of a vector register
//     VECTOR_TARGET          attribute that allows the instruction set, or nothing
//     VECTOR_TABLE           identifier of its struct vector_ops
//     VECTOR_NAME            name of the variant, a string
//     VECTOR_MAX(a, b)       per fp32 lane a > b ? a : b, thus b where a is NaN
//     VECTOR_GET_PART(x, n, rest), VECTOR_PUT_PART(x, lanes, n)
//                            optional: as lanes_get_part() and lanes_put_part() below
// and includes this once.
#include "kernels/vector_ops.h"

#include <math.h>
#include <string.h>

#define LANES  ((int)(VECTOR_BYTES / sizeof(float)))
#define INLINE static inline __attribute__((always_inline)) VECTOR_TARGET
#define LOOP   static VECTOR_TARGET

typedef float lanes_f __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t lanes_i __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t lanes_u __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t half_h __attribute__((vector_size(VECTOR_BYTES / 2)));

// ---- whole and partial registers ----------------------------------------------------------------

INLINE lanes_f lanes_all(float value)
{
    return (lanes_f){0} + value;
}

INLINE lanes_f lanes_get(const float *x)
{
    lanes_f lanes;
    memcpy(&lanes, x, sizeof(lanes));
    return lanes;
}

INLINE void lanes_put(float *x, lanes_f lanes)
{
    memcpy(x, &lanes, sizeof(lanes));
}

// Loads the first n < LANES lanes from memory, and sets the others to `rest`.
INLINE lanes_f lanes_get_part(const float *x, int n, float rest)
{
#ifdef VECTOR_GET_PART
    return (lanes_f)VECTOR_GET_PART(x, n, rest);
#else
    lanes_f lanes = lanes_all(rest);
    memcpy(&lanes, x, (size_t)n * sizeof(float));
    return lanes;
#endif
}

INLINE void lanes_put_part(float *x, lanes_f lanes, int n)
{
#ifdef VECTOR_PUT_PART
    VECTOR_PUT_PART(x, lanes, n);
#else
    memcpy(x, &lanes, (size_t)n * sizeof(float));
#endif
}

// Bits of x where the mask is set, bits of y elsewhere.
INLINE lanes_u lanes_choose(lanes_i mask, lanes_u x, lanes_u y)
{
    return (x & (lanes_u)mask) | (y & ~(lanes_u)mask);
}

INLINE lanes_f lanes_max(lanes_f x, lanes_f y)
{
    return (lanes_f)VECTOR_MAX(x, y);
}

INLINE float lanes_sum(lanes_f lanes)
{
    float sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

// ---- element types ------------------------------------------------------------------------------

INLINE lanes_u float_of_bf16(lanes_u half)
{
    return half << 16;
}

// The shifted bits are an fp32 number that is 2^112 times too small, and denormal if `half` is. The
// product restores its value. Infinity and NaN get the largest exponent.
INLINE lanes_u float_of_fp16(lanes_u half)
{
    lanes_u magnitude = half & 0x7fff;
    lanes_u bits = (lanes_u)((lanes_f)(magnitude << 13) * 0x1p112f);
    lanes_u special = (lanes_u)(magnitude >= 0x7c00) & 0x7f800000;
    return bits | special | (half & 0x8000) << 16;
}

INLINE lanes_u bf16_of_float(lanes_u bits)
{
    lanes_u rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    lanes_u quiet = (bits | 0x00400000) >> 16;
    return lanes_choose((bits & 0x7fffffff) > 0x7f800000, quiet, rounded);
}

// Below the smallest fp16 normal: the sum with 0.5, whose ulp in fp32 is 2^-24, rounds to a
// multiple of 2^-24, the step of fp16 denormals.
INLINE lanes_u fp16_of_float(lanes_u bits)
{
    lanes_u magnitude = bits & 0x7fffffff;
    lanes_u normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    lanes_u denormal = (lanes_u)((lanes_f)magnitude + 0.5f) - 0x3f000000;
    lanes_u quiet = (magnitude >> 13 & 0x3ff) | 0x7e00;
    lanes_u half = lanes_choose(magnitude < 0x38800000, denormal, normal);
    half = lanes_choose(magnitude >= 0x477ff000, (lanes_u){0} + 0x7c00, half);
    half = lanes_choose(magnitude > 0x7f800000, quiet, half);
    return half | (bits >> 16 & 0x8000);
}

INLINE void load_lanes(enum case_dtype dtype, const uint16_t *source, float *values, int n)
{
    half_h half = {0};
    if (n == LANES)
        memcpy(&half, source, sizeof(half));
    else
        memcpy(&half, source, (size_t)n * sizeof(uint16_t));
    lanes_u wide = __builtin_convertvector(half, lanes_u);
    lanes_f x = (lanes_f)(dtype == DTYPE_BF16 ? float_of_bf16(wide) : float_of_fp16(wide));
    if (n == LANES)
        lanes_put(values, x);
    else
        lanes_put_part(values, x, n);
}

INLINE void load_all(enum case_dtype dtype, const uint16_t *source, float *values, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        load_lanes(dtype, source + i, values + i, LANES);
    if (i < count)
        load_lanes(dtype, source + i, values + i, (int)(count - i));
}

LOOP void vector_load(enum case_dtype dtype, const void *source, float *values, int64_t count)
{
    if (dtype == DTYPE_FP32)
        memcpy(values, source, (size_t)count * sizeof(float));
    else if (dtype == DTYPE_BF16)
        load_all(DTYPE_BF16, source, values, count);
    else
        load_all(DTYPE_FP16, source, values, count);
}

INLINE void store_lanes(enum case_dtype dtype, const float *values, uint16_t *target, int n)
{
    lanes_u bits = (lanes_u)(n == LANES ? lanes_get(values) : lanes_get_part(values, n, 0));
    lanes_u wide = dtype == DTYPE_BF16 ? bf16_of_float(bits) : fp16_of_float(bits);
    half_h half = __builtin_convertvector(wide, half_h);
    if (n == LANES)
        memcpy(target, &half, sizeof(half));
    else
        memcpy(target, &half, (size_t)n * sizeof(uint16_t));
}

INLINE void store_all(enum case_dtype dtype, const float *values, uint16_t *target, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        store_lanes(dtype, values + i, target + i, LANES);
    if (i < count)
        store_lanes(dtype, values + i, target + i, (int)(count - i));
}

LOOP void vector_store(enum case_dtype dtype, const float *values, void *target, int64_t count)
{
    if (dtype == DTYPE_FP32)
        memcpy(target, values, (size_t)count * sizeof(float));
    else if (dtype == DTYPE_BF16)
        store_all(DTYPE_BF16, values, target, count);
    else
        store_all(DTYPE_FP16, values, target, count);
}

// ---- softmax ------------------------------------------------------------------------------------

// 2^x = 2^n 2^r, where n is x rounded to an integer and |r| <= 1/2. 2^r is a polynomial (minimax,
// relative error 2e-9); 2^n is made from its exponent bits. Adding 1.5 * 2^23 rounds x to n and
// leaves n in the low bits.
INLINE lanes_f lanes_exp2(lanes_f x)
{
    const float round = 0x1.8p23f;
    lanes_i tiny = x < -126.0f; // both false for NaN
    lanes_i huge = x > 128.0f;
    x = (lanes_f)lanes_choose(huge, (lanes_u)lanes_all(128.0f), (lanes_u)x);
    lanes_f shifted = x + round;
    lanes_f r = x - (shifted - round);
    lanes_f p = r * 0x1.41fbbcp-13f + 0x1.5f3e54p-10f;
    p = p * r + 0x1.3b2d4cp-7f;
    p = p * r + 0x1.c6aee8p-5f;
    p = p * r + 0x1.ebfbdcp-3f;
    p = p * r + 0x1.62e43p-1f;
    p = p * r + 1.0f;
    lanes_f power = (lanes_f)(((lanes_u)shifted << 23) + 0x3f800000);
    return (lanes_f)((lanes_u)(p * power) & ~(lanes_u)tiny);
}

LOOP float vector_max(const float *x, int count, float m)
{
    lanes_f max0 = lanes_all(m), max1 = max0;
    int i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        max0 = lanes_max(lanes_get(x + i), max0);
        max1 = lanes_max(lanes_get(x + i + LANES), max1);
    }
    for (; i + LANES <= count; i += LANES)
        max0 = lanes_max(lanes_get(x + i), max0);
    if (i < count)
        max1 = lanes_max(lanes_get_part(x + i, count - i, -INFINITY), max1);
    max0 = lanes_max(max0, max1);
    for (i = 0; i < LANES; i++)
        m = max0[i] > m ? max0[i] : m;
    return m;
}

LOOP float vector_exp2_sum(float *x, int count, float shift)
{
    lanes_f sum = {0};
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes_f p = lanes_exp2(lanes_get(x + i) - shift);
        lanes_put(x + i, p);
        sum += p;
    }
    if (i < count) {
        lanes_f p = lanes_exp2(lanes_get_part(x + i, count - i, -INFINITY) - shift);
        lanes_put_part(x + i, p, count - i);
        sum += p;
    }
    return lanes_sum(sum);
}

LOOP void vector_exp2_gradient(float *p, float *g, int count, float shift, float delta)
{
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        lanes_f probability = lanes_exp2(lanes_get(p + i) - shift);
        lanes_put(p + i, probability);
        lanes_put(g + i, probability * (lanes_get(g + i) - delta));
    }
    if (i < count) {
        lanes_f probability = lanes_exp2(lanes_get_part(p + i, count - i, 0) - shift);
        lanes_put_part(p + i, probability, count - i);
        lanes_f gradient = probability * (lanes_get_part(g + i, count - i, 0) - delta);
        lanes_put_part(g + i, gradient, count - i);
    }
}

// For |x| < 0.625 an odd polynomial (relative error 2e-8), otherwise (1 - e) / (1 + e), where e =
// exp(-2 |x|). The slope is 4 e / (1 + e)^2, which equals 1 - tanh^2 without its cancellation.
INLINE lanes_f lanes_tanh(lanes_f x, lanes_f *slope)
{
    lanes_f z = x * x;
    lanes_f p = z * -0x1.8d49f8p-8f + 0x1.57a01ep-6f;
    p = p * z - 0x1.b91aep-5f;
    p = p * z + 0x1.110dfp-3f;
    p = p * z - 0x1.555552p-2f;
    lanes_f near = x + x * (z * p);
    lanes_u sign = (lanes_u)x & 0x80000000;
    lanes_f magnitude = (lanes_f)((lanes_u)x & 0x7fffffff);
    lanes_f e = lanes_exp2(magnitude * -0x1.715476p1f), inverse = 1.0f / (1.0f + e);
    lanes_f far = (1.0f - e) * inverse;
    lanes_i is_near = magnitude < 0.625f;
    *slope = 4.0f * e * (inverse * inverse);
    return (lanes_f)lanes_choose(is_near, (lanes_u)near, (lanes_u)far | sign);
}

LOOP void vector_tanh(float *x, float *slope, int count)
{
    for (int i = 0; i < count; i += LANES) {
        int n = count - i < LANES ? count - i : LANES;
        lanes_f s, t = lanes_tanh(n == LANES ? lanes_get(x + i) : lanes_get_part(x + i, n, 0), &s);
        if (n == LANES)
            lanes_put(x + i, t);
        else
            lanes_put_part(x + i, t, n);
        if (slope && n == LANES)
            lanes_put(slope + i, s);
        else if (slope)
            lanes_put_part(slope + i, s, n);
    }
}

// ---- rows ---------------------------------------------------------------------------------------

LOOP void vector_scale(float *x, int count, float factor)
{
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes_put(x + i, lanes_get(x + i) * factor);
    for (; i < count; i++)
        x[i] *= factor;
}

LOOP void vector_multiply(float *y, const float *x, int count)
{
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes_put(y + i, lanes_get(y + i) * lanes_get(x + i));
    for (; i < count; i++)
        y[i] *= x[i];
}

LOOP void vector_axpy(float *y, const float *x, int count, float factor)
{
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes_put(y + i, lanes_get(y + i) + lanes_get(x + i) * factor);
    for (; i < count; i++)
        y[i] += x[i] * factor;
}

LOOP void vector_blend(float *y, float wy, const float *x, float wx, int count)
{
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes_put(y + i, lanes_get(y + i) * wy + lanes_get(x + i) * wx);
    for (; i < count; i++)
        y[i] = y[i] * wy + x[i] * wx;
}

LOOP void vector_add(float *y, const float *x, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        lanes_put(y + i, lanes_get(y + i) + lanes_get(x + i));
    for (; i < count; i++)
        y[i] += x[i];
}

LOOP float vector_dot(const float *x, const float *y, int count)
{
    lanes_f sum = {0};
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        sum += lanes_get(x + i) * lanes_get(y + i);
    if (i < count)
        sum += lanes_get_part(x + i, count - i, 0) * lanes_get_part(y + i, count - i, 0);
    return lanes_sum(sum);
}

const struct vector_ops VECTOR_TABLE = {
    .name = VECTOR_NAME,
    .load = vector_load,
    .store = vector_store,
    .max = vector_max,
    .exp2_sum = vector_exp2_sum,
    .exp2_gradient = vector_exp2_gradient,
    .tanh = vector_tanh,
    .scale = vector_scale,
    .multiply = vector_multiply,
    .axpy = vector_axpy,
    .blend = vector_blend,
    .add = vector_add,
    .dot = vector_dot,
};
