// SPDX-License-Identifier: Apache-2.0
#include "common/blas.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// Functions of OpenBLAS; NULL with another CBLAS.
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

// OpenBLAS's name of the fastest kernels that this processor can run; NULL: SSE kernels only.
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

// OpenBLAS 0.3.21 mistakes an Intel processor with an unknown model number for a Prescott of 2004
// and computes at a fifth of the speed. Makes OpenBLAS choose again with the name of the right
// kernels, unless the user has set one.
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
