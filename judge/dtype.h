// SPDX-License-Identifier: Apache-2.0
// The judge's own reading and writing of a case's element types, so that an error in that of the
// kernels shows.
#ifndef CPATTN_JUDGE_DTYPE_H
#define CPATTN_JUDGE_DTYPE_H

#include "plan/case.h"

// Elements [first, first + count) of an array in fp32, which holds every bf16 and fp16 value,
// denormals included.
void dtype_read(enum case_dtype dtype, const void *data, int64_t first, int64_t count,
                float *values);

// Writes `count` elements from the start of `data`, rounded to nearest, ties to even. What is
// beyond the range becomes infinity, denormals are kept, NaN stays NaN.
void dtype_write(enum case_dtype dtype, const float *values, int64_t count, void *data);

// Rounds values in place to what the dtype holds, as dtype_write() and dtype_read() would.
void dtype_round(enum case_dtype dtype, float *values, int64_t count);

#endif
