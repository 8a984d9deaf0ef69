// SPDX-License-Identifier: Apache-2.0
// Reference conversions of a case's element types, one element at a time. Faster conversions must
// give the same bits.
#ifndef CPATTN_KERNELS_DTYPE_H
#define CPATTN_KERNELS_DTYPE_H

#include <stdint.h>

#include "plan/dtype.h"

// Bytes of an element; 0 for a value outside the enum.
int dtype_bytes(enum case_dtype dtype);

// Element `index` of an array in fp32; exact for every bf16 and fp16 value, denormals included.
float dtype_load(enum case_dtype dtype, const void *data, int64_t index);

// Rounds to nearest, ties to even. Values beyond the range become infinity, denormals are kept, NaN
// becomes a quiet NaN with the leading bits of its payload.
void dtype_store(enum case_dtype dtype, void *data, int64_t index, float value);

#endif
