// SPDX-License-Identifier: Apache-2.0
#ifdef __x86_64__
#include <immintrin.h>

#define DRAW_BYTES          64
#define DRAW_TARGET         __attribute__((target("avx512f")))
#define DRAW_TABLE          draw_avx512
#define DRAW_NAME           "avx512"
#define DRAW_MULTIPLY(a, b) _mm512_mul_epu32((__m512i)(a), (__m512i)(b))
#define DRAW_HIGH(x)        (lanes_w) _mm512_shuffle_epi32((__m512i)(x), _MM_PERM_DDBB)

#include "judge/draw_body.h"
#else
typedef int draw_avx512_is_not_for_this_machine;
#endif
