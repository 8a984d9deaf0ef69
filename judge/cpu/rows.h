// SPDX-License-Identifier: Apache-2.0
// Computes results from one row of products, for both implementations of the twin
// (judge/cpu/twin.h).
#ifndef CPATTN_JUDGE_CPU_ROWS_H
#define CPATTN_JUDGE_CPU_ROWS_H

#include "judge/cpu/outputs.h"
#include "plan/case.h"

// Makes the processor treat fp32 denormals as zero in this thread: they do not matter here, and are
// a hundred times slower. Returns the argument for rows_denormals_restore().
unsigned rows_denormals_flush(void);
void rows_denormals_restore(unsigned before);

// The outputs from row `row` on.
struct expected_queries rows_at(const struct cp_case *c, const struct expected_queries *e,
                                int64_t row);

// Fills the results of queries that see nothing.
void rows_nothing(const struct cp_case *c, bool reference, int head, int64_t rows,
                  const struct expected_queries *e);

// The LSE of a row from the sum of exp(logit - shift), including the sink's term. If the sum
// overflows, the keys are negligible and the LSE is the sink. It is also the sink if the sum is 0.
double rows_lse(double shift, double sum, double sink);

// Computes one row of results [d] from two products: `head` with the rounded part of a matrix, and
// `rest` with its rest. The reference (NULL: not wanted) is factor * (head + rest); the twin is
// factor * head, rounded to the dtype.
void rows_finish(enum case_dtype dtype, int d, double factor, const float *head, const float *rest,
                 double *reference, float *twin);

// Computes delta of the twin, and of the reference if wanted, of a row from its dO [d_v] and out.
void rows_delta(const struct cp_case *c, bool reference, const float *d_out, int64_t row,
                const struct expected_queries *e);

// Adds the contribution of a row to the sums of the sink's gradient.
void rows_sink(const struct cp_case *c, int head, int64_t row, const struct expected_queries *e);

#endif
