// SPDX-License-Identifier: Apache-2.0
// What is made of one row of products on either way to the twin (judge/cpu/twin.h).
#ifndef CPATTN_JUDGE_CPU_ROWS_H
#define CPATTN_JUDGE_CPU_ROWS_H

#include "judge/cpu/outputs.h"
#include "plan/case.h"

// Makes the processor take denormals of fp32 for zero: they weigh nothing here and cost a hundred
// times as much as other numbers. Returns what rows_denormals_restore() wants.
unsigned rows_denormals_flush(void);
void rows_denormals_restore(unsigned before);

// The results from a row of them on.
struct expected_queries rows_at(const struct cp_case *c, const struct expected_queries *e,
                                int64_t row);

// Results of queries that see nothing.
void rows_nothing(const struct cp_case *c, bool reference, int head, int64_t rows,
                  const struct expected_queries *e);

// One row of results [d] from its products with what the dtype holds of a matrix, `head`, and with
// the rest: the reference's (NULL: not wanted) is their sum, the twin's the first one, rounded.
void rows_finish(enum case_dtype dtype, int d, double factor, const float *head, const float *rest,
                 double *reference, float *twin);

// The deltas of a row from its dO [d_v] and both results.
void rows_delta(const struct cp_case *c, bool reference, const float *d_out, int64_t row,
                const struct expected_queries *e);

// Adds what a row contributes to the gradient of the sink.
void rows_sink(const struct cp_case *c, int head, int64_t row, const struct expected_queries *e);

#endif
