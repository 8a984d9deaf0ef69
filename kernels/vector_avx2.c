// SPDX-License-Identifier: Apache-2.0
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels/vector_variants.h"

#define VECTOR_BYTES     32
#define VECTOR_TARGET    __attribute__((target("avx2,fma")))
#define VECTOR_TABLE     vector_avx2
#define VECTOR_NAME      "avx2"
#define VECTOR_MAX(a, b) _mm256_max_ps((__m256)(a), (__m256)(b))
#define VECTOR_MASK(n)                                                                             \
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define VECTOR_GET_PART(x, n, rest)                                                                \
    _mm256_blendv_ps(_mm256_set1_ps(rest), _mm256_maskload_ps(x, VECTOR_MASK(n)),                  \
                     _mm256_castsi256_ps(VECTOR_MASK(n)))
#define VECTOR_PUT_PART(x, lanes, n) _mm256_maskstore_ps(x, VECTOR_MASK(n), (__m256)(lanes))

#include "kernels/vector_body.h"
#else
typedef int vector_avx2_is_not_for_this_machine;
#endif
