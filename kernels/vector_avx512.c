// SPDX-License-Identifier: Apache-2.0
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels/vector_variants.h"

#define VECTOR_BYTES                 64
#define VECTOR_TARGET                __attribute__((target("avx512f,fma")))
#define VECTOR_TABLE                 vector_avx512
#define VECTOR_NAME                  "avx512"
#define VECTOR_MAX(a, b)             _mm512_max_ps((__m512)(a), (__m512)(b))
#define VECTOR_MASK(n)               ((__mmask16)((1u << (n)) - 1))
#define VECTOR_GET_PART(x, n, rest)  _mm512_mask_loadu_ps(_mm512_set1_ps(rest), VECTOR_MASK(n), x)
#define VECTOR_PUT_PART(x, lanes, n) _mm512_mask_storeu_ps(x, VECTOR_MASK(n), (__m512)(lanes))

#include "kernels/vector_body.h"
#else
typedef int vector_avx512_is_not_for_this_machine;
#endif
