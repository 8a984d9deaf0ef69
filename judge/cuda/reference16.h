// SPDX-License-Identifier: Apache-2.0
// Reference and twin of cases with 16-bit dtypes, for all rows of a rank at a time, from inputs in
// the case's dtype. Rows, tiles and results are those of reference_cuda.h.
//
// The error of the reference is that of fp32 sums, about a thousandth of the twin's error.
#ifndef CPATTN_JUDGE_CUDA_REFERENCE16_H
#define CPATTN_JUDGE_CUDA_REFERENCE16_H

#include "judge/cuda/reference_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// The twin is always computed. The other outputs are computed unless they are NULL: `exact` of the
// results, `max`, `terms`, and `data` and `terms` of the gradient of the bias.

// Computes out, LSE and the largest logit of each row, max [heads][rows].
void reference16_out(const struct reference_cuda *r, const struct reference_rows *queries,
                     const struct reference_results *out, struct reference_stat *stats, float *max);

// Computes dQ, and adds to the gradient of the bias unless its `twin` is NULL.
void reference16_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                    const struct reference_stat *stats, const struct reference_dbias *dbias,
                    const struct reference_results *dq, float *terms);

// Computes dK and dV from the statistics of all queries [heads][tokens of all sequences].
void reference16_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                     const struct reference_stat *stats, const struct reference_results *dk,
                     const struct reference_results *dv, float *terms);

#ifdef __cplusplus
}
#endif

#endif
