// SPDX-License-Identifier: Apache-2.0
// The reference in fp64, for cases in fp32 and for cases whose logits are too large for fp32.
#ifndef CPATTN_JUDGE_CUDA_REFERENCE64_H
#define CPATTN_JUDGE_CUDA_REFERENCE64_H

#include "judge/cuda/reference_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// Computes out, LSE and the largest logit of each row, max [heads][rows], unless it is NULL.
void reference64_out(const struct reference_cuda *r, const struct reference_rows *queries,
                     double *out, struct reference_stat64 *stats, float *max);

// Computes dQ with its terms, and adds to `data` of `dbias`.
void reference64_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                    const struct reference_stat64 *stats, const struct reference_dbias *dbias,
                    double *dq, float *terms);

// Computes dK with its terms, and dV, from the statistics of all queries [heads][tokens of all
// sequences].
void reference64_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                     const struct reference_stat64 *stats, double *dk, double *dv, float *terms);

#ifdef __cplusplus
}
#endif

#endif
