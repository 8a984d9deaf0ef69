// SPDX-License-Identifier: Apache-2.0
// Reference and twin of cases in 16 bit, for all rows of a rank at a time, from inputs that are
// narrow (reference_cuda.h). Rows are dealt in tiles as there; results are [heads][rows][padded
// dim], of dQ and O for query heads, of dK and dV for key heads. Their padding is zero.
//
// The errors of the reference are those of fp32 sums, a thousandth of the twin's.
#ifndef CPATTN_JUDGE_CUDA_REFERENCE16_H
#define CPATTN_JUDGE_CUDA_REFERENCE16_H

#include "judge/cuda/reference_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// Of the results `exact` may be NULL: then the twin alone is wanted, and `max`, `terms` and the
// bias's exact gradient are left alone, too.

// out and LSE; where `max` is not NULL the largest logit of each row [heads][rows].
void reference16_out(const struct reference_cuda *r, const struct reference_rows *queries,
                     const struct reference_results *out, struct reference_stat *stats, float *max);

void reference16_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                    const struct reference_stat *stats, const struct reference_dbias *dbias,
                    const struct reference_results *dq, float *terms);

// From the statistics of all queries: [heads][tokens of all sequences].
void reference16_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                     const struct reference_stat *stats, const struct reference_results *dk,
                     const struct reference_results *dv, float *terms);

#ifdef __cplusplus
}
#endif

#endif
