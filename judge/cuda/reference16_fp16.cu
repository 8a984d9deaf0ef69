// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda/reference16.cuh"

void reference16_run_fp16(const struct reference_cuda *r, const struct reference_rows *rows,
                          attend16 &a, pass which)
{
    passes_run<hmma_fp16>(r, rows, a, which);
}
