// SPDX-License-Identifier: Apache-2.0
#include "judge/cpu/weights.h"

#ifdef __x86_64__
#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "judge/rules.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

#define LANES     16
// Number of elements that are summed in fp32 before the sum is added in fp64.
#define SHORT_SUM 512

// Lanes of the elements [first, first + 16) that lie in [begin, end).
INLINE __mmask16 lanes_in(int64_t first, int64_t begin, int64_t end)
{
    if (first >= begin && first + LANES <= end)
        return 0xffff;
    if (first + LANES <= begin || first >= end)
        return 0;
    unsigned lanes = 0xffff;
    if (first < begin)
        lanes &= 0xffffu << (begin - first);
    if (first + LANES > end)
        lanes &= 0xffffu >> (first + LANES - end);
    return (__mmask16)lanes;
}

TARGET float weights_max(const float *x, int64_t begin, int64_t end, float scale)
{
    __m512 factor = _mm512_set1_ps(scale), max = _mm512_set1_ps(-INFINITY);
    for (int64_t i = begin; i < end; i += LANES) {
        __mmask16 lanes = lanes_in(i, begin, end);
        __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), factor);
        max = _mm512_mask_max_ps(max, lanes, max, scaled);
    }
    return _mm512_reduce_max_ps(max);
}

// exp(x) = 2^n e^r with an integer n and |r| <= ln 2 / 2; 0 below 2^-126.
INLINE __m512 exp_of(__m512 x)
{
    __mmask16 counts = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
    x = _mm512_min_ps(x, _mm512_set1_ps(88.0f));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0f)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
    __m512 p = _mm512_set1_ps(0x1.6c16c2p-10f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.111112p-7f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555556p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555556p-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(counts, p, n);
}

INLINE __m512 bf16_value(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

// Stores head = round(twin) and, unless `rest` is NULL, rest = round(exact - head), in bf16.
INLINE void pieces_store(__m512 twin, __m512 exact, uint16_t *head, uint16_t *rest)
{
    __m256i rounded = (__m256i)_mm512_cvtneps_pbh(twin);
    _mm256_storeu_si256((__m256i *)(void *)head, rounded);
    if (rest)
        _mm256_storeu_si256((__m256i *)(void *)rest,
                            (__m256i)_mm512_cvtneps_pbh(_mm512_sub_ps(exact, bf16_value(rounded))));
}

INLINE double exp_make(const struct weights_exp *w, int64_t padded, bool many_shifts, bool rest)
{
    __m512 scale = _mm512_set1_ps(w->scale), shift = _mm512_set1_ps(w->shift);
    double sum = 0;
    for (int64_t first = 0; first < padded; first += SHORT_SUM) {
        __m512 part = _mm512_setzero_ps();
        int64_t end = padded - first < SHORT_SUM ? padded : first + SHORT_SUM;
        for (int64_t i = first; i < end; i += LANES) {
            __mmask16 lanes = lanes_in(i, w->begin, w->end);
            __m512 e = _mm512_setzero_ps();
            if (lanes) {
                if (many_shifts)
                    shift = _mm512_loadu_ps(w->shifts + i);
                // The logit is rounded, as the shift is: with an exact product, the largest of huge
                // logits would differ from itself. The compiler may not contract this product.
                __m512 x = _mm512_mul_round_ps(_mm512_loadu_ps(w->x + i), scale,
                                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
                e = _mm512_maskz_mov_ps(lanes, exp_of(_mm512_sub_ps(x, shift)));
            }
            _mm512_storeu_ps(w->x + i, e);
            part = _mm512_add_ps(part, e);
            pieces_store(e, e, w->head + i, rest ? w->rest + i : NULL);
        }
        sum += _mm512_reduce_add_ps(part);
    }
    return sum;
}

TARGET double weights_exp(const struct weights_exp *w, int64_t padded)
{
    if (w->shifts)
        return w->rest ? exp_make(w, padded, true, true) : exp_make(w, padded, true, false);
    return w->rest ? exp_make(w, padded, false, true) : exp_make(w, padded, false, false);
}

INLINE double gradient_make(const struct weights_gradient *g, int64_t padded, bool slope,
                            bool many_deltas, bool rest)
{
    __m512 factor = _mm512_set1_ps(g->factor), delta = _mm512_set1_ps(g->delta);
    __m512 delta_twin = _mm512_set1_ps(g->delta_twin), products = _mm512_set1_ps(g->products);
    __m512 cap_error = _mm512_set1_ps(g->cap_error), least = _mm512_set1_ps(RULES_CAP_ERROR);
    double sum = 0;
    for (int64_t first = 0; first < padded; first += SHORT_SUM) {
        __m512 part = _mm512_setzero_ps();
        int64_t end = padded - first < SHORT_SUM ? padded : first + SHORT_SUM;
        for (int64_t i = first; i < end; i += LANES) {
            __m512 p = _mm512_mul_ps(_mm512_loadu_ps(g->p + i), factor);
            __m512 dp = _mm512_loadu_ps(g->dp + i), p_twin = p;
            if (slope) {
                __m512 slopes = _mm512_loadu_ps(g->slope + i);
                __m512 error = _mm512_fmadd_ps(cap_error, slopes, least);
                __m512 moved = _mm512_add_ps(slopes, error);
                moved = _mm512_mask_sub_ps(moved, 0x5555, slopes, error);
                p_twin = _mm512_mul_ps(p, moved);
                p = _mm512_mul_ps(p, slopes);
            }
            if (many_deltas) {
                delta = _mm512_loadu_ps(g->deltas + i);
                delta_twin = _mm512_loadu_ps(g->deltas_twin + i);
            }
            __m512 squares = _mm512_fmadd_ps(dp, dp, _mm512_fmadd_ps(delta, delta, products));
            part = _mm512_fmadd_ps(_mm512_mul_ps(p_twin, p_twin), squares, part);
            __m512 twin = _mm512_mul_ps(p_twin, _mm512_sub_ps(dp, delta_twin));
            __m512 exact = _mm512_mul_ps(p, _mm512_sub_ps(dp, delta));
            pieces_store(twin, exact, g->head + i, rest ? g->rest + i : NULL);
        }
        sum += _mm512_reduce_add_ps(part);
    }
    return sum;
}

TARGET double weights_gradient(const struct weights_gradient *g, int64_t padded)
{
    if (g->slope || !g->rest) {
        bool many = g->deltas != NULL;
        return gradient_make(g, padded, g->slope != NULL, many, g->rest != NULL);
    }
    return g->deltas ? gradient_make(g, padded, false, true, true)
                     : gradient_make(g, padded, false, false, true);
}
#else
typedef int judge_cpu_weights_is_not_for_this_machine;
#endif
