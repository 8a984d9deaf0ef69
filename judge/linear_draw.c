// SPDX-License-Identifier: Apache-2.0
// The inputs of linear layers. A Philox block has four elements. Its key is the seed; its counter
// consists of the tensor and the index of these elements in the whole layer.
#include "judge/linear_draw.h"

#include "judge/dtype.h"
#include "judge/philox.h"

#define PIECE 256

int64_t linear_row_length(const struct linear *l, enum linear_tensor tensor)
{
    struct linear_sizes sizes = linear_sizes(l);
    switch (tensor) {
    case LINEAR_X:
        return sizes.in > 0 ? sizes.in : sizes.middle;
    case LINEAR_W1:
        return sizes.in;
    case LINEAR_B1:
        return sizes.gates * sizes.middle;
    case LINEAR_W2:
        return sizes.middle;
    default:
        return sizes.out > 0 ? sizes.out : sizes.middle;
    }
}

// Factor of a signed 32-bit random number. It makes elements uniform with variance 1, and weights
// so much smaller that products with them have about this variance, too.
float linear_scale(const struct linear *l, enum linear_tensor tensor)
{
    float scale = 1.75f * 0x1p-31f;
    if (tensor == LINEAR_W1 || tensor == LINEAR_W2)
        for (int64_t n = linear_row_length(l, tensor); n >= 2; n /= 4)
            scale /= 2;
    return scale;
}

void linear_draw(const struct linear *l, enum linear_tensor tensor, int64_t row, int64_t first,
                 int64_t count, double *values)
{
    uint64_t index = (uint64_t)(row * linear_row_length(l, tensor) + first), known = UINT64_MAX;
    struct philox_block block = {{0}};
    float scale = linear_scale(l, tensor), some[PIECE];
    for (int64_t i = 0; i < count; i += PIECE) {
        int64_t n = count - i < PIECE ? count - i : PIECE;
        for (int64_t k = 0; k < n; k++, index++) {
            struct philox_block counter = {{(uint32_t)(index / 4), (uint32_t)(index / 4 >> 32),
                                            (uint32_t)tensor, LINEAR_PHILOX_WORD}};
            if (index / 4 != known)
                block = philox_block(counter, l->seed);
            known = index / 4;
            some[k] = (float)(int32_t)block.word[index % 4] * scale;
        }
        dtype_round(l->dtype, some, n);
        for (int64_t k = 0; k < n; k++)
            values[i + k] = (double)some[k];
    }
}

int64_t linear_some_at(struct linear_some some, int64_t i)
{
    return some.first + i * some.length / some.count;
}
