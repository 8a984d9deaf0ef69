// SPDX-License-Identifier: Apache-2.0
#ifdef __x86_64__
#include <immintrin.h>

#define DRAW_BYTES          32
#define DRAW_TARGET         __attribute__((target("avx2")))
#define DRAW_TABLE          draw_avx2
#define DRAW_NAME           "avx2"
#define DRAW_MULTIPLY(a, b) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#define DRAW_HIGH(x)        (lanes_w) _mm256_shuffle_epi32((__m256i)(x), 0xf5)

#include "judge/draw_body.h"
#else
typedef int draw_avx2_is_not_for_this_machine;
#endif
