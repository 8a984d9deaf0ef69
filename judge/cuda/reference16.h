// SPDX-License-Identifier: Apache-2.0
// Reference and twin of cases in 16 bits, for all rows of a rank at a time, from inputs in the
// case's dtype. Rows, tiles and results are those of reference_cuda.h.
//
// The reference has the errors of fp32 sums, about a thousandth of the twin's.
#ifndef CPATTN_JUDGE_CUDA_REFERENCE16_H
#define CPATTN_JUDGE_CUDA_REFERENCE16_H

#include "judge/cuda/reference_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// `exact` of the results may be NULL. Then only the twin is computed; `max`, `terms` and the exact
// gradient of the bias do not change either.

// out and LSE, and the largest logit of each row, max [heads][rows], unless it is NULL.
void reference16_out(const struct reference_cuda *r, const struct reference_rows *queries,
                     const struct reference_results *out, struct reference_stat *stats, float *max);

void reference16_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                    const struct reference_stat *stats, const struct reference_dbias *dbias,
                    const struct reference_results *dq, float *terms);

// From the statistics of all queries [heads][tokens of all sequences].
void reference16_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                     const struct reference_stat *stats, const struct reference_results *dk,
                     const struct reference_results *dv, float *terms);

#ifdef __cplusplus
}
#endif

#endif
