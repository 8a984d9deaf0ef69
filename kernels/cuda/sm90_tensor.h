// SPDX-License-Identifier: Apache-2.0
// Tensor maps: how bulk copies of sm_90 see a tensor. Host code.
#ifndef CPATTN_KERNELS_CUDA_SM90_TENSOR_H
#define CPATTN_KERNELS_CUDA_SM90_TENSOR_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/attention.h"

// A tensor [rows][heads][d], d a multiple of 8, at a multiple of 16 bytes. Its map
// has the dimensions column, position, head and residue: row = position * row_step + residue. Of
// the rows none is touched from position `positions` on.
struct sm90_tensor {
    const void *address;
    enum case_dtype dtype;
    int32_t d, heads;
    int64_t row_step, positions;
};

// Whether the driver makes tensor maps.
bool sm90_tensor_maps(void);

// A map with boxes of 64 columns, 32 of fp32, and `box_rows` positions, 1..256, in swizzled rows of
// 128 bytes. Columns from d on and positions outside read as 0.
cudaError_t sm90_tensor_map(const struct sm90_tensor *tensor, int32_t box_rows, CUtensorMap *map);

// A matrix whose rows are `stride` elements apart. However many rows there are: only boxes that are
// there may be copied.
struct sm90_matrix {
    const void *address;
    enum case_dtype dtype;
    int64_t stride;
};

// Columns and rows are less than this.
#define SM90_MATRIX_MOST (INT64_C(1) << 30)

// Whether there can be a map: the matrix and its rows begin at multiples of 16 bytes.
bool sm90_matrix_fits(const struct sm90_matrix *matrix);

// A map with the dimensions column and row, and boxes of so many columns, together a multiple of 16
// bytes, and rows, 1..256: swizzled where a row of a box is 128 or 64 bytes. A copy of a box that
// does not begin at a multiple of 16 bytes is an illegal instruction.
cudaError_t sm90_matrix_map(const struct sm90_matrix *matrix, int32_t box_columns, int32_t box_rows,
                            CUtensorMap *map);

// The rows that slices name on one side, as positions and residues of their row step.
struct sm90_extent {
    int64_t positions; // one more than the largest of any slice
    bool whole;        // every residue in use has all of these positions
};
struct sm90_extent sm90_extent_of(const struct slice *slices, int32_t slice_count, int64_t row_step,
                                  bool queries);

#ifdef __cplusplus
}
#endif

#endif
