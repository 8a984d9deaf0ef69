// SPDX-License-Identifier: Apache-2.0
// Tensor maps: how the TMA of sm_90 addresses a tensor. Host code.
#ifndef CPATTN_KERNELS_CUDA_SM90_TENSOR_H
#define CPATTN_KERNELS_CUDA_SM90_TENSOR_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/attention.h"

// A tensor [rows][heads][d] with d a multiple of 8, at a multiple of 16 bytes. Its map has the
// dimensions column, position, head and residue: row = position * row_step + residue. Rows at
// `positions` and beyond are not accessed.
struct sm90_tensor {
    const void *address;
    enum case_dtype dtype;
    int32_t d, heads;
    int64_t row_step, positions;
};

// True if the driver can encode tensor maps.
bool sm90_tensor_maps(void);

// Encodes a map whose boxes have 64 columns (fp32: 32) of `box_rows` positions, 1..256, of one head
// and residue. A box is stored as rows of 128 bytes with the 128-byte swizzle. Columns from d on
// and positions outside read as 0.
cudaError_t sm90_tensor_map(const struct sm90_tensor *tensor, int32_t box_rows, CUtensorMap *map);

// A matrix whose rows are `stride` elements apart. Its number of rows is not known to the map, so
// only boxes inside the matrix may be copied.
struct sm90_matrix {
    const void *address;
    enum case_dtype dtype;
    int64_t stride;
};

// Columns and rows of a matrix are less than this.
#define SM90_MATRIX_MOST (INT64_C(1) << 30)

// True if the matrix can have a map: it is not NULL, its rows begin at multiples of 16 bytes, and
// the stride is in 1..SM90_MATRIX_MOST - 1.
bool sm90_matrix_fits(const struct sm90_matrix *matrix);

// Encodes a map with the dimensions column and row. Boxes have `box_rows` rows, 1..256, of
// `box_columns` columns, whose bytes are a multiple of 16; rows of 128 or 64 bytes are swizzled. A
// copy of a box that does not begin at a multiple of 16 bytes is an illegal instruction.
cudaError_t sm90_matrix_map(const struct sm90_matrix *matrix, int32_t box_columns, int32_t box_rows,
                            CUtensorMap *map);

// The rows that slices use on one side, queries or keys, by position and residue of the row step.
struct sm90_extent {
    int64_t positions; // one more than the largest position of any slice
    bool whole;        // every residue in use has all of these positions
};
struct sm90_extent sm90_extent_of(const struct slice *slices, int32_t slice_count, int64_t row_step,
                                  bool queries);

#ifdef __cplusplus
}
#endif

#endif
