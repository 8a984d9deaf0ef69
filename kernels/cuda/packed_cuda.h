// SPDX-License-Identifier: Apache-2.0
// Operations on packed rows on the device; see kernels/backend.h. rows->runs is host memory and is
// read before a call returns.
#ifndef CPATTN_KERNELS_CUDA_PACKED_CUDA_H
#define CPATTN_KERNELS_CUDA_PACKED_CUDA_H

#include "kernels/attention.h"
#include "kernels/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

void merge_rows_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                     const struct packed_rows *rows, enum case_dtype dtype, const void *o_packed,
                     const float *lse_packed, enum packed_layout layout, float *o, float *lse);
void pack_rows_cuda(struct attention_backend *backend, const struct packed_rows *rows,
                    int64_t width, enum case_dtype dtype, const float *source, void *packed);
void add_rows_cuda(struct attention_backend *backend, const struct packed_rows *rows, int64_t width,
                   enum case_dtype dtype, const void *packed, float *destination);
void pack_heads_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                     const struct packed_rows *rows, enum packed_layout layout, const float *source,
                     float *packed);

#ifdef __cplusplus
}
#endif

#endif
