// SPDX-License-Identifier: Apache-2.0
#include "judge/draw.h"

void draw_list(const struct draw_ops *variants[DRAW_VARIANTS_MAX])
{
    int count = 0;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        variants[count++] = &draw_avx512;
    if (__builtin_cpu_supports("avx2"))
        variants[count++] = &draw_avx2;
#endif
    variants[count++] = &draw_plain;
    variants[count] = NULL;
}

const struct draw_ops *draw_best(void)
{
    const struct draw_ops *variants[DRAW_VARIANTS_MAX];
    draw_list(variants);
    return variants[0];
}
