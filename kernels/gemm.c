// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

enum status gemm_run(const struct gemm_provider *const *providers,
                     struct attention_backend *backend, const struct gemm *g, struct error *error)
{
    for (; *providers; providers++)
        if ((*providers)->supports(backend, g))
            return (*providers)->run(backend, g, error);
    return error_set(error, STATUS_UNIMPLEMENTED,
                     "no provider multiplies %lld x %lld x %lld elements", (long long)g->m,
                     (long long)g->n, (long long)g->k);
}
