// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/sm90_tensor.h"

#include <cudaTypedefs.h>

#include "kernels/dtype.h"

// Finds the driver's encoder through the runtime: libcuda is not linked. NULL if there is none.
static PFN_cuTensorMapEncodeTiled_v12000 encoder_find(void)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error;
#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                             cudaEnableDefault, &found);
#else
    error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess)
        cudaGetLastError();
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess)
        return NULL;
    return (PFN_cuTensorMapEncodeTiled_v12000)function;
}

// Keeps the encoder once found, because finding it takes longer than encoding a map.
static PFN_cuTensorMapEncodeTiled_v12000 encoder(void)
{
    static _Atomic(PFN_cuTensorMapEncodeTiled_v12000) found;
    PFN_cuTensorMapEncodeTiled_v12000 encode = found;
    if (!encode)
        found = encode = encoder_find();
    return encode;
}

bool sm90_tensor_maps(void)
{
    return encoder() != NULL;
}

static CUtensorMapDataType map_type(enum case_dtype dtype)
{
    return dtype == DTYPE_BF16   ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
           : dtype == DTYPE_FP16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

cudaError_t sm90_tensor_map(const struct sm90_tensor *tensor, int32_t box_rows, CUtensorMap *map)
{
    PFN_cuTensorMapEncodeTiled_v12000 encode = encoder();
    if (!encode)
        return cudaErrorNotSupported;
    cuuint64_t head = (cuuint64_t)tensor->d * (cuuint64_t)dtype_bytes(tensor->dtype);
    cuuint64_t row = head * (cuuint64_t)tensor->heads, step = (cuuint64_t)tensor->row_step;
    const cuuint64_t extents[] = {(cuuint64_t)tensor->d, (cuuint64_t)tensor->positions,
                                  (cuuint64_t)tensor->heads, step};
    const cuuint64_t strides[] = {row * step, head, row};
    const cuuint32_t box[] = {128 / (cuuint32_t)dtype_bytes(tensor->dtype), (cuuint32_t)box_rows, 1,
                              1},
                     every[] = {1, 1, 1, 1};
    CUresult result =
        encode(map, map_type(tensor->dtype), 4, (void *)(uintptr_t)tensor->address, extents,
               strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

bool sm90_matrix_fits(const struct sm90_matrix *matrix)
{
    return matrix->address && (uintptr_t)matrix->address % 16 == 0 && matrix->stride > 0 &&
           matrix->stride < SM90_MATRIX_MOST &&
           matrix->stride * dtype_bytes(matrix->dtype) % 16 == 0;
}

cudaError_t sm90_matrix_map(const struct sm90_matrix *matrix, int32_t box_columns, int32_t box_rows,
                            CUtensorMap *map)
{
    PFN_cuTensorMapEncodeTiled_v12000 encode = encoder();
    if (!encode)
        return cudaErrorNotSupported;
    const cuuint64_t bytes = (cuuint64_t)dtype_bytes(matrix->dtype);
    const cuuint64_t extents[] = {(cuuint64_t)matrix->stride, SM90_MATRIX_MOST};
    const cuuint64_t strides[] = {(cuuint64_t)matrix->stride * bytes};
    const cuuint32_t box[] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows}, every[] = {1, 1};
    const CUtensorMapSwizzle swizzle = box[0] * bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                       : box[0] * bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                              : CU_TENSOR_MAP_SWIZZLE_NONE;
    CUresult result = encode(map, map_type(matrix->dtype), 2, (void *)(uintptr_t)matrix->address,
                             extents, strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

struct sm90_extent sm90_extent_of(const struct slice *slices, int32_t slice_count, int64_t row_step,
                                  bool queries)
{
    struct sm90_extent extent = {.positions = 0};
    int64_t rows = 0, residue_most = 0;
    for (int32_t i = 0; i < slice_count; i++) {
        const struct slice *s = &slices[i];
        if (s->q_len <= 0 || s->kv_len <= 0)
            continue;
        int64_t row = queries ? s->q_row : s->kv_row, length = queries ? s->q_len : s->kv_len;
        int64_t position = row / row_step + length, residue = row % row_step;
        int64_t end = residue + (position - 1) * row_step + 1;
        extent.positions = position > extent.positions ? position : extent.positions;
        residue_most = residue > residue_most ? residue : residue_most;
        rows = end > rows ? end : rows;
    }
    extent.whole = extent.positions == 0 || residue_most + (extent.positions - 1) * row_step < rows;
    return extent;
}
