// SPDX-License-Identifier: Apache-2.0
// The judge's own conversion of a case's element types, so that an error in the conversion of the
// kernels becomes visible.
#ifndef CPATTN_JUDGE_DTYPE_H
#define CPATTN_JUDGE_DTYPE_H

#include "plan/case.h"

// Reads elements [first, first + count) of an array as fp32, which represents every bf16 and fp16
// value exactly, including denormals.
void dtype_read(enum case_dtype dtype, const void *data, int64_t first, int64_t count,
                float *values);

// Writes `count` elements to the start of `data`, rounded to nearest, ties to even. Values beyond
// the range become infinity; denormals and NaN are kept.
void dtype_write(enum case_dtype dtype, const float *values, int64_t count, void *data);

// Rounds values in place to the dtype, as dtype_write() followed by dtype_read().
void dtype_round(enum case_dtype dtype, float *values, int64_t count);

#endif
