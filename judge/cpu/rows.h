// SPDX-License-Identifier: Apache-2.0
// Computes results from one row of products, for both implementations of the twin
// (judge/cpu/twin.h).
#ifndef CPATTN_JUDGE_CPU_ROWS_H
#define CPATTN_JUDGE_CPU_ROWS_H

#include "judge/cpu/outputs.h"
#include "plan/case.h"

// Makes the processor treat denormals of fp32 as zero: they have no weight here and are a hundred
// times slower. Returns the argument for rows_denormals_restore().
unsigned rows_denormals_flush(void);
void rows_denormals_restore(unsigned before);

// The results from a given row on.
struct expected_queries rows_at(const struct cp_case *c, const struct expected_queries *e,
                                int64_t row);

// Results of queries that see nothing.
void rows_nothing(const struct cp_case *c, bool reference, int head, int64_t rows,
                  const struct expected_queries *e);

// The LSE of a row from the sum of exp(logit - shift), the sink's term included, which may
// overflow: then the keys have no part in it. Without a sum it is the sink.
double rows_lse(double shift, double sum, double sink);

// One row of results [d] from its products with the rounded part of a matrix, `head`, and with the
// rest. The reference (NULL: not wanted) is their sum; the twin is the first one, rounded.
void rows_finish(enum case_dtype dtype, int d, double factor, const float *head, const float *rest,
                 double *reference, float *twin);

// The deltas of a row from its dO [d_v] and both results.
void rows_delta(const struct cp_case *c, bool reference, const float *d_out, int64_t row,
                const struct expected_queries *e);

// Adds the contribution of a row to the gradient of the sink.
void rows_sink(const struct cp_case *c, int head, int64_t row, const struct expected_queries *e);

#endif
