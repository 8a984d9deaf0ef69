// SPDX-License-Identifier: Apache-2.0
#include "common/blas.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// OpenBLAS has these; another CBLAS does not, and then they are NULL.
#define OPTIONAL __attribute__((weak))
OPTIONAL void openblas_set_num_threads(int count);
OPTIONAL char *openblas_get_corename(void);
OPTIONAL void gotoblas_dynamic_quit(void);
OPTIONAL void gotoblas_dynamic_init(void);

#define CORE_VARIABLE "OPENBLAS_CORETYPE"

const char *blas_core_name(void)
{
    return openblas_get_corename ? openblas_get_corename() : "?";
}

// The OpenBLAS name of the best kernels that this processor runs; NULL for none beyond SSE.
static const char *core_of_processor(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

// OpenBLAS 0.3.21 takes an Intel processor with a model number that it does not know for a Prescott
// of 2004 and computes at a fifth of the speed. Its choice is then made again with the name given,
// unless the user has given one.
static void core_correct(void)
{
    const char *core = core_of_processor();
    if (!core || !openblas_get_corename || !gotoblas_dynamic_quit || !gotoblas_dynamic_init)
        return;
    if (getenv(CORE_VARIABLE) || strcmp(openblas_get_corename(), "Prescott") != 0)
        return;
    setenv(CORE_VARIABLE, core, 1);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    unsetenv(CORE_VARIABLE);
}

void blas_prepare(void)
{
    if (openblas_set_num_threads)
        openblas_set_num_threads(1);
    core_correct();
}
