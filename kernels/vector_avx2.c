// SPDX-License-Identifier: Apache-2.0
#ifdef __x86_64__
#include <immintrin.h>

#include "kernels/vector_variants.h"

#define VECTOR_BYTES          32
#define VECTOR_TARGET         __attribute__((target("avx2,fma")))
#define VECTOR_TABLE          vector_avx2
#define VECTOR_NAME           "avx2"
#define VECTOR_MULTIPLY(a, b) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#define VECTOR_MAX(a, b)      _mm256_max_ps((__m256)(a), (__m256)(b))

#include "kernels/vector_body.h"
#else
typedef int vector_avx2_is_not_for_this_machine;
#endif
