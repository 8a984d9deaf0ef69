// SPDX-License-Identifier: Apache-2.0
#include "kernels/vector_variants.h"

#define VECTOR_BYTES 16
#define VECTOR_TARGET
#define VECTOR_TABLE vector_plain
#define VECTOR_NAME  "plain"

#ifdef __SSE2__
#include <emmintrin.h>
#define VECTOR_MAX(a, b) _mm_max_ps((__m128)(a), (__m128)(b))
#else
#define VECTOR_MAX(a, b) lanes_choose((a) > (b), (lanes_u)(a), (lanes_u)(b))
#endif

#include "kernels/vector_body.h"
