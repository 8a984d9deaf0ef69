// SPDX-License-Identifier: Apache-2.0
// Draws elements of linear layers on a device, with the same bits as judge/linear_draw.c.
#ifndef CPATTN_JUDGE_CUDA_LINEAR_DRAWN_CUH
#define CPATTN_JUDGE_CUDA_LINEAR_DRAWN_CUH

#include "judge/cuda/dtype.cuh"

extern "C" {
#include "judge/linear_view.h"
#include "judge/philox.h"
}

// A drawn matrix: some rows and columns of a tensor of the whole layer, whose rows have row_length
// elements.
struct drawn {
    uint64_t seed;
    int64_t row_length;
    struct linear_axis rows, columns;
    uint32_t tensor;
    float scale;
};

// The number of element i of the axis in the whole; the formula is that of struct linear_axis.
static __device__ __forceinline__ int64_t axis_at(const struct linear_axis &axis, int64_t i)
{
    int64_t gate = 0;
    if (i >= axis.count) {
        gate = i / axis.count;
        i -= gate * axis.count;
    }
    if (axis.length != axis.count)
        i = i * axis.length / axis.count;
    return gate * axis.stride + axis.base + i;
}

// Element [row][column] of the matrix, rounded to the dtype.
template <class Dtype>
static __device__ __forceinline__ float drawn_at(const struct drawn &d, int64_t row, int64_t column)
{
    uint64_t index = (uint64_t)(axis_at(d.rows, row) * d.row_length + axis_at(d.columns, column));
    struct philox_block counter = {
        {(uint32_t)(index / 4), (uint32_t)(index / 4 >> 32), d.tensor, LINEAR_PHILOX_WORD}};
    struct philox_block block = philox_block(counter, d.seed);
    uint32_t place = (uint32_t)index % 4;
    uint32_t word = place < 2 ? (place == 0 ? block.word[0] : block.word[1])
                              : (place == 2 ? block.word[2] : block.word[3]);
    return Dtype::value(Dtype::round((float)(int32_t)word * d.scale));
}

static inline struct drawn drawn_of(const struct linear *l, enum linear_tensor tensor,
                                    struct linear_axis rows, struct linear_axis columns)
{
    struct drawn d;
    d.seed = l->seed;
    d.row_length = linear_row_length(l, tensor);
    d.rows = rows;
    d.columns = columns;
    d.tensor = (uint32_t)tensor;
    d.scale = linear_scale(l, tensor);
    return d;
}

#endif
