// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda/reference16.cuh"

void reference16_run_bf16(const struct reference_cuda *r, const struct reference_rows *rows,
                          attend16 &a, pass which)
{
    passes_run<hmma_bf16>(r, rows, a, which);
}
