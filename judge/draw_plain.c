// SPDX-License-Identifier: Apache-2.0
#define DRAW_BYTES 16
#define DRAW_TARGET
#define DRAW_TABLE draw_plain
#define DRAW_NAME  "plain"

#ifdef __SSE2__
#include <emmintrin.h>
#define DRAW_MULTIPLY(a, b) _mm_mul_epu32((__m128i)(a), (__m128i)(b))
#define DRAW_HIGH(x)        ((x) >> 32)
#else
#define DRAW_MULTIPLY(a, b) (((a)&0xffffffff) * ((b)&0xffffffff))
#endif

#include "judge/draw_body.h"
