// SPDX-License-Identifier: Apache-2.0
#include "kernels/vector.h"

#include <stddef.h>

#include "kernels/vector_variants.h"

void vector_list(const struct vector_ops *variants[VECTOR_VARIANTS_MAX])
{
    int count = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        variants[count++] = &vector_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        variants[count++] = &vector_avx2;
#endif
    variants[count++] = &vector_plain;
    variants[count] = NULL;
}

const struct vector_ops *vector_best(void)
{
    const struct vector_ops *variants[VECTOR_VARIANTS_MAX];
    vector_list(variants);
    return variants[0];
}
