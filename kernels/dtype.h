// SPDX-License-Identifier: Apache-2.0
// Conversion of the element types of a case, one element at a time; faster conversions must give
// the same bits.
#ifndef CPATTN_KERNELS_DTYPE_H
#define CPATTN_KERNELS_DTYPE_H

#include "plan/case.h"

// Bytes of an element; 0 for a value outside the enum.
int dtype_bytes(enum case_dtype dtype);

// Element `index` of an array. Every bf16 and fp16 value, denormals included, is exact in fp32.
float dtype_load(enum case_dtype dtype, const void *data, int64_t index);

// Rounds to nearest, ties to even; beyond the range becomes infinity, denormals are kept, NaN stays
// NaN (quiet, with the leading bits of its payload).
void dtype_store(enum case_dtype dtype, void *data, int64_t index, float value);

#endif
