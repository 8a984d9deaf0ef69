// SPDX-License-Identifier: Apache-2.0
// A collective as the judge of one rank sees it: the origin and the right value of each element of
// the receive. Compiles as C and as CUDA, with bit-identical results.
#ifndef CPATTN_JUDGE_COLLECTIVE_VIEW_H
#define CPATTN_JUDGE_COLLECTIVE_VIEW_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "judge/philox.h"
#include "plan/element.h"

#ifdef __CUDACC__ // after <cuda_fp16.h>
#define VIEW_INLINE static __device__ __forceinline__
#else
#include <string.h>

#include "judge/dtype.h"
#define VIEW_INLINE static inline
#endif

struct collective_view {
    int32_t rank, world_size;
    int32_t element;   // enum collective_element
    int32_t reduction; // enum collective_reduction; 0: no reduction
    bool specials;     // some real elements are zeros, infinities, NaN or denormals
    uint64_t seed;
    double bound; // the limit of a sum's error, as a fraction of the sum of absolute values
    // The receive in blocks. Block b is elements [first[b], first[b + 1]). It begins with element
    // at[b] of the send of rank source[b]; source[b] == -1: of the reduction of all sends.
    int32_t blocks;
    int64_t first[WORLD_SIZE_MAX + 1];
    int32_t source[WORLD_SIZE_MAX];
    int64_t at[WORLD_SIZE_MAX];
};

// An element as a number; all dtypes are represented exactly.
union view_number {
    double real;
    int64_t whole;
};

// The origin of an element of a receive: one index of all sends, or of one send.
struct view_origin {
    int32_t rank; // -1: all
    int64_t index;
};

// The right value of a real element, the limit of its error, and the twin's value.
struct view_right {
    double value, bound, twin;
    int32_t rules; // bit mask of enum view_rule
};

enum view_rule {
    VIEW_MOVED = 1, // compared bit by bit
    VIEW_SIGN = 2,  // the sign of a zero is compared
    VIEW_NAN = 4,   // NaN is also right
};

VIEW_INLINE bool view_is_real(const struct collective_view *v)
{
    return v->element == ELEMENT_FP32 || v->element == ELEMENT_FP16 || v->element == ELEMENT_BF16;
}

// Significant bits, the hidden one included.
VIEW_INLINE int view_precision(const struct collective_view *v)
{
    return v->element == ELEMENT_FP16 ? 11 : v->element == ELEMENT_BF16 ? 8 : 24;
}

// Rounds to nearest even in the dtype. Rounding to fp32 first does no harm to a sum, product or
// quotient of two numbers of a 16-bit dtype, because 24 bits are at least 2 * 11 + 2.
VIEW_INLINE double view_rounded(const struct collective_view *v, double value)
{
    float narrow = (float)value;
    if (v->element == ELEMENT_FP32)
        return (double)narrow;
#ifdef __CUDACC__
    if (v->element == ELEMENT_FP16)
        return (double)__half2float(__float2half_rn(narrow));
    uint32_t bits = __float_as_uint(narrow);
    return (double)__uint_as_float((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
#else
    uint32_t bits;
    if (v->element == ELEMENT_FP16) {
#ifdef __FLT16_MAX__
        return (double)(_Float16)narrow;
#else
        dtype_round(DTYPE_FP16, &narrow, 1);
        return (double)narrow;
#endif
    }
    memcpy(&bits, &narrow, sizeof(bits));
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&narrow, &bits, sizeof(bits));
    return (double)narrow;
#endif
}

VIEW_INLINE int64_t view_truncated(const struct collective_view *v, uint64_t value)
{
    return v->element == ELEMENT_UINT8   ? (int64_t)(uint8_t)value
           : v->element == ELEMENT_INT32 ? (int64_t)(int32_t)value
                                         : (int64_t)value;
}

// Random numbers that use all significant bits of the dtype, in [-1, 1) or in a half, quarter or
// eighth of that range. Factors of products lie within 1/8 of 1 or -1, so that products of 64
// numbers neither underflow nor overflow in fp16.
VIEW_INLINE double view_drawn_real(const struct collective_view *v, uint64_t bits)
{
    int p = view_precision(v);
    bool factor = v->reduction == REDUCTION_PROD;
    int32_t steps = (int32_t)(bits >> 32) >> (32 - p + (factor ? 3 : 0));
    double spread = steps * (1.0 / (double)(1 << (p - 1)));
    if (factor)
        return (bits & 1 ? -1 : 1) * (1 + spread);
    return spread / (double)(1 << (bits & 3));
}

// Special values of some indices. At such an index all ranks use the same row of the table below,
// and each rank one of its four entries, so that special values meet in a reduction. Sums and
// products have +0 and -0 in place of denormals, because rounding of denormals has no relative
// bound.
enum {
    VIEW_DRAWN,
    VIEW_ZERO,
    VIEW_MINUS_ZERO,
    VIEW_QUIET_NAN,
    VIEW_INFINITE,
    VIEW_MINUS_INFINITE,
    VIEW_TINY,
    VIEW_MINUS_TINY
};
#define VIEW_ROW(a, b, c, d) ((a) | (b) << 4 | (c) << 8 | (d) << 12)

VIEW_INLINE int32_t view_special_row(int32_t row)
{
    switch (row) {
    case 0:
        return VIEW_ROW(VIEW_ZERO, VIEW_MINUS_ZERO, VIEW_ZERO, VIEW_MINUS_ZERO);
    case 1:
        return VIEW_ROW(VIEW_ZERO, VIEW_MINUS_ZERO, VIEW_MINUS_ZERO, VIEW_DRAWN);
    case 2:
        return VIEW_ROW(VIEW_QUIET_NAN, VIEW_DRAWN, VIEW_DRAWN, VIEW_DRAWN);
    case 3:
        return VIEW_ROW(VIEW_INFINITE, VIEW_MINUS_INFINITE, VIEW_DRAWN, VIEW_DRAWN);
    case 4:
        return VIEW_ROW(VIEW_QUIET_NAN, VIEW_ZERO, VIEW_MINUS_ZERO, VIEW_INFINITE);
    case 5:
        return VIEW_ROW(VIEW_TINY, VIEW_MINUS_TINY, VIEW_ZERO, VIEW_MINUS_ZERO);
    case 6:
        return VIEW_ROW(VIEW_INFINITE, VIEW_DRAWN, VIEW_DRAWN, VIEW_DRAWN);
    default:
        return VIEW_ROW(VIEW_QUIET_NAN, VIEW_QUIET_NAN, VIEW_QUIET_NAN, VIEW_MINUS_INFINITE);
    }
}

VIEW_INLINE double view_special(const struct collective_view *v, int32_t special, double drawn)
{
    bool adds = v->reduction != 0 && v->reduction != REDUCTION_MIN && v->reduction != REDUCTION_MAX;
    double tiny = v->element == ELEMENT_FP16   ? 1.0 / (1 << 24)
                  : v->element == ELEMENT_BF16 ? ldexp(1.0, -133)
                                               : ldexp(1.0, -149);
    switch (special) {
    case VIEW_ZERO:
        return 0.0;
    case VIEW_MINUS_ZERO:
        return -0.0;
    case VIEW_QUIET_NAN:
        return NAN;
    case VIEW_INFINITE:
        return INFINITY;
    case VIEW_MINUS_INFINITE:
        return -INFINITY;
    case VIEW_TINY:
        return adds ? 0.0 : tiny;
    case VIEW_MINUS_TINY:
        return adds ? -0.0 : -tiny;
    default:
        return drawn;
    }
}

// The bits of the NaN that inputs contain.
VIEW_INLINE uint32_t view_nan_bits(const struct collective_view *v)
{
    return v->element == ELEMENT_FP16   ? 0x7e00u
           : v->element == ELEMENT_BF16 ? 0x7fc0u
                                        : 0x7fc00000u;
}

// Factors of integer products are odd, so that a product never becomes 0; values that are averaged
// do not overflow in a sum of 64.
VIEW_INLINE int64_t view_drawn_whole(const struct collective_view *v, uint64_t bits)
{
    if (v->reduction == REDUCTION_PROD)
        bits |= 1;
    if (v->reduction == REDUCTION_AVG && v->element == ELEMENT_INT32)
        return (int64_t)(int32_t)bits >> 8;
    if (v->reduction == REDUCTION_AVG && v->element == ELEMENT_INT64)
        return (int64_t)bits >> 8;
    return view_truncated(v, bits);
}

// One index in four is special. `bits`: random bits of the rank, which select its entry of the row.
VIEW_INLINE double view_drawn_special(const struct collective_view *v, int64_t index, uint32_t bits,
                                      double drawn)
{
    struct philox_block counter = {{(uint32_t)index, (uint32_t)(index >> 32), 0, 0x53706563u}};
    uint32_t row = philox_block(counter, v->seed).word[0];
    if (row & 3)
        return drawn;
    return view_special(v, view_special_row((int32_t)(row >> 2 & 7)) >> 4 * (bits & 3) & 15, drawn);
}

// Element `index` of the send of a rank.
VIEW_INLINE union view_number view_drawn(const struct collective_view *v, int32_t rank,
                                         int64_t index)
{
    struct philox_block counter = {
        {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)rank, 0x436f6c6cu}};
    struct philox_block block = philox_block(counter, v->seed);
    uint64_t bits = (uint64_t)block.word[0] << 32 | block.word[1];
    union view_number number;
    if (!view_is_real(v)) {
        number.whole = view_drawn_whole(v, bits);
        return number;
    }
    number.real = view_drawn_real(v, bits);
    if (v->specials)
        number.real = view_drawn_special(v, index, block.word[2], number.real);
    return number;
}

// The origin of an element of the receive. Blocks of equal size need no search.
VIEW_INLINE struct view_origin view_origin_of(const struct collective_view *v, int64_t index)
{
    int32_t block = (int32_t)((double)index / (double)v->first[v->blocks] * v->blocks);
    while (block > 0 && (block >= v->blocks || index < v->first[block]))
        block--;
    while (index >= v->first[block + 1])
        block++;
    struct view_origin origin = {v->source[block], v->at[block] + index - v->first[block]};
    return origin;
}

VIEW_INLINE struct view_right view_right_sum(const struct collective_view *v, int64_t index)
{
    bool product = v->reduction == REDUCTION_PROD;
    struct view_right right = {product ? 1.0 : 0.0, 0, product ? 1.0 : 0.0,
                               product ? VIEW_SIGN : 0};
    double sizes = 0;
    for (int32_t rank = 0; rank < v->world_size; rank++) {
        double x = view_drawn(v, rank, index).real;
        right.value = product ? right.value * x : right.value + x;
        right.twin = view_rounded(v, product ? right.twin * x : right.twin + x);
        sizes = product ? fabs(right.value) : sizes + fabs(x);
    }
    if (v->reduction == REDUCTION_AVG && v->world_size > 1) {
        right.value /= v->world_size;
        right.twin = view_rounded(v, right.twin / v->world_size);
        sizes /= v->world_size;
    }
    right.bound = v->bound * sizes;
    return right;
}

// Standards differ for zeros of both signs and for NaN. minimum and maximum of IEEE 754-2019 order
// -0 before +0 and return NaN; minimumNumber and maximumNumber ignore NaN; C's fmin() and NCCL may
// return either zero; MPI does not define it. The result of any of these is right. A number that is
// not the smallest (largest), or a zero that no rank has, is wrong.
VIEW_INLINE struct view_right view_right_most(const struct collective_view *v, int64_t index)
{
    struct view_right right = {NAN, 0, NAN, 0};
    bool zero = false, minus_zero = false, nan = false;
    for (int32_t rank = 0; rank < v->world_size; rank++) {
        double x = view_drawn(v, rank, index).real;
        bool more = v->reduction == REDUCTION_MAX ? x > right.value : x < right.value;
        nan = nan || x != x;
        zero = zero || (x == 0 && !signbit(x));
        minus_zero = minus_zero || (x == 0 && signbit(x));
        if (x == x && (right.value != right.value || more))
            right.value = x;
    }
    right.twin = right.value;
    right.rules = (nan ? VIEW_NAN : 0) | (zero && minus_zero ? 0 : VIEW_SIGN);
    return right;
}

VIEW_INLINE struct view_right view_right_real(const struct collective_view *v,
                                              struct view_origin origin)
{
    if (origin.rank < 0)
        return v->reduction == REDUCTION_MIN || v->reduction == REDUCTION_MAX
                   ? view_right_most(v, origin.index)
                   : view_right_sum(v, origin.index);
    double drawn = view_drawn(v, origin.rank, origin.index).real;
    struct view_right right = {drawn, 0, drawn, VIEW_MOVED | VIEW_SIGN};
    return right;
}

VIEW_INLINE int64_t view_reduced_whole(const struct collective_view *v, int64_t a, int64_t b)
{
    switch (v->reduction) {
    case REDUCTION_PROD:
        return view_truncated(v, (uint64_t)a * (uint64_t)b);
    case REDUCTION_MIN:
        return a < b ? a : b;
    case REDUCTION_MAX:
        return a > b ? a : b;
    default:
        return view_truncated(v, (uint64_t)a + (uint64_t)b);
    }
}

VIEW_INLINE int64_t view_right_whole(const struct collective_view *v, struct view_origin origin)
{
    if (origin.rank >= 0)
        return view_drawn(v, origin.rank, origin.index).whole;
    int64_t right = view_drawn(v, 0, origin.index).whole;
    for (int32_t rank = 1; rank < v->world_size; rank++)
        right = view_reduced_whole(v, right, view_drawn(v, rank, origin.index).whole);
    return v->reduction == REDUCTION_AVG ? right / v->world_size : right;
}

// ---- the comparison, element by element ---------------------------------------------------------

// Counts and sums over some elements of a receive.
struct view_tally {
    double error2, twin2, bound2, right2, along; // sums of squares, and of error * right
    double twin_along;                           // sum of twin's error * right
    double chance2, chance4;                     // sums of view_chance(), and of its squares
    double max_abs, worst;                       // worst: the largest view_used()
    int64_t mismatches, nonfinite;
    int64_t first_bad; // index of the first wrong element; INT64_MAX: none
};

VIEW_INLINE void view_bad(struct view_tally *t, int64_t index)
{
    t->mismatches++;
    t->first_bad = index < t->first_bad ? index : t->first_bad;
}

// Returns the error as a fraction of its bound: more than 1 if the element is wrong, infinite if it
// is wrong and must be exact. `drawn_nan`: the element has the bits of the NaN that inputs contain.
VIEW_INLINE double view_used(struct view_right right, double got, bool drawn_nan)
{
    if (got != got && (right.rules & VIEW_MOVED))
        return drawn_nan && right.value != right.value ? 0 : INFINITY;
    if (got != got)
        return right.value != right.value || (right.rules & VIEW_NAN) ? 0 : INFINITY;
    if (got == right.value)
        return (right.rules & VIEW_SIGN) && !signbit(got) != !signbit(right.value) ? INFINITY : 0;
    if (!isfinite(got) || !isfinite(right.value))
        return INFINITY;
    return fabs(got - right.value) / right.bound;
}

// Returns (twin's error * right)^2. An error of 0.3 * 2^-precision is the minimum, because by
// chance the twin may have no rounding error.
VIEW_INLINE double view_chance(const struct collective_view *v, struct view_right right)
{
    double twin = right.twin - right.value, rounding = ldexp(0.3, -view_precision(v)) * right.value;
    return fmax(twin * twin, rounding * rounding) * right.value * right.value;
}

VIEW_INLINE void view_tally_real(const struct collective_view *v, struct view_tally *t,
                                 int64_t index, double got, bool drawn_nan, struct view_right right)
{
    double error = got - right.value, used = view_used(right, got, drawn_nan);
    t->worst = fmax(t->worst, used);
    if (!(used <= 1))
        view_bad(t, index);
    if (!isfinite(got) && !(used <= 1))
        t->nonfinite++;
    if (!isfinite(right.value))
        return;
    if (isfinite(got)) {
        t->error2 += error * error;
        t->along += error * right.value;
        t->max_abs = fmax(t->max_abs, fabs(error));
    }
    t->right2 += right.value * right.value;
    t->bound2 += right.bound * right.bound;
    t->twin2 += (right.twin - right.value) * (right.twin - right.value);
    t->twin_along += (right.twin - right.value) * right.value;
    double chance = view_chance(v, right);
    t->chance2 += chance;
    t->chance4 += chance * chance;
}

VIEW_INLINE void view_tally_whole(struct view_tally *t, int64_t index, int64_t got, int64_t right)
{
    if (got == right)
        return;
    t->worst = INFINITY;
    t->max_abs = fmax(t->max_abs, fabs((double)got - (double)right));
    view_bad(t, index);
}

// Adds the tally of other elements.
VIEW_INLINE void view_tally_join(struct view_tally *t, const struct view_tally *more)
{
    t->error2 += more->error2;
    t->twin2 += more->twin2;
    t->bound2 += more->bound2;
    t->right2 += more->right2;
    t->along += more->along;
    t->twin_along += more->twin_along;
    t->chance2 += more->chance2;
    t->chance4 += more->chance4;
    t->max_abs = fmax(t->max_abs, more->max_abs);
    t->worst = fmax(t->worst, more->worst);
    t->mismatches += more->mismatches;
    t->nonfinite += more->nonfinite;
    t->first_bad = more->first_bad < t->first_bad ? more->first_bad : t->first_bad;
}

#endif
