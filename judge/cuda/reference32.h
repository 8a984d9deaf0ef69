// SPDX-License-Identifier: Apache-2.0
// The twin of cases in fp32: attention in plain fp32. It computes the twin's results and the LSE of
// the statistics. Gradients use delta_twin, see reference_cuda_delta().
#ifndef CPATTN_JUDGE_CUDA_REFERENCE32_H
#define CPATTN_JUDGE_CUDA_REFERENCE32_H

#include "judge/cuda/reference_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

void reference32_out(const struct reference_cuda *r, const struct reference_rows *queries,
                     float *out, struct reference_stat *stats);

// Of `dbias` it adds only to `twin`.
void reference32_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                    const struct reference_stat *stats, const struct reference_dbias *dbias,
                    float *dq);

void reference32_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                     const struct reference_stat *stats, float *dk, float *dv);

#ifdef __cplusplus
}
#endif

#endif
