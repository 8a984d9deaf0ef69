// SPDX-License-Identifier: Apache-2.0
// Vectorized drawing of inputs. A file draw_<name>.c for one instruction set defines
//     DRAW_BYTES           bytes of a vector register
//     DRAW_TARGET          attribute that allows the instruction set, or nothing
//     DRAW_TABLE           the name of its struct draw_ops
//     DRAW_NAME            the name of the instruction set, for messages
//     DRAW_MULTIPLY(a, b)  products of the low 32 bits of each 64-bit lane
//     DRAW_HIGH(x)         moves the high 32 bits of each lane to its low 32 bits; the new high
//                          bits are undefined
// and includes this file once.
#include "judge/draw.h"
#include "judge/philox.h"

#include <string.h>

#define WIDE_LANES  ((int)(DRAW_BYTES / sizeof(uint64_t)))
#define DRAW_INLINE static inline __attribute__((always_inline)) DRAW_TARGET

typedef uint64_t lanes_w __attribute__((vector_size(DRAW_BYTES)));
typedef float half_f __attribute__((vector_size(DRAW_BYTES / 2)));
typedef int32_t half_i __attribute__((vector_size(DRAW_BYTES / 2)));

// Philox round keys, the same in every lane, and the product of the first round that depends only
// on the tensor.
struct round_keys {
    lanes_w low[PHILOX_ROUNDS], high[PHILOX_ROUNDS];
    lanes_w tensor_low, tensor_high;
};

DRAW_INLINE void round_keys_init(struct round_keys *keys, uint64_t seed, uint32_t tensor)
{
    for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
        keys->low[round] = (lanes_w){0} + (uint32_t)((uint32_t)seed + round * PHILOX_KEY_STEP_0);
        keys->high[round] =
            (lanes_w){0} + (uint32_t)((uint32_t)(seed >> 32) + round * PHILOX_KEY_STEP_1);
    }
    uint64_t product = (uint64_t)tensor * PHILOX_MULTIPLIER_1;
    keys->tensor_low = (lanes_w){0} + (uint32_t)product;
    keys->tensor_high = ((lanes_w){0} + (product >> 32)) ^ keys->low[0];
}

// Returns the sum of the eight 16-bit halves of a Philox block, for WIDE_LANES elements. Only the
// low 32 bits of each lane are used until the end; the bits above them are undefined.
DRAW_INLINE lanes_w block_sums(const struct round_keys *keys, lanes_w index)
{
    lanes_w product0 = (lanes_w)DRAW_MULTIPLY(index, (lanes_w){0} + PHILOX_MULTIPLIER_0);
    lanes_w c0 = (index >> 32) ^ keys->tensor_high, c1 = keys->tensor_low;
    lanes_w c2 = DRAW_HIGH(product0) ^ keys->high[0], c3 = product0;
#pragma GCC unroll 10
    for (int round = 1; round < PHILOX_ROUNDS; round++) {
        product0 = (lanes_w)DRAW_MULTIPLY(c0, (lanes_w){0} + PHILOX_MULTIPLIER_0);
        lanes_w product1 = (lanes_w)DRAW_MULTIPLY(c2, (lanes_w){0} + PHILOX_MULTIPLIER_1);
        c0 = DRAW_HIGH(product1) ^ c1 ^ keys->low[round];
        c1 = product1;
        c2 = DRAW_HIGH(product0) ^ c3 ^ keys->high[round];
        c3 = product0;
    }
    lanes_w low = (c0 & 0xffff) + (c1 & 0xffff) + (c2 & 0xffff) + (c3 & 0xffff);
    return low + (c0 >> 16 & 0xffff) + (c1 >> 16 & 0xffff) + (c2 >> 16 & 0xffff) +
           (c3 >> 16 & 0xffff);
}

DRAW_INLINE half_f value_of_sums(const struct input_draw *draw, lanes_w wide_sums)
{
    half_i sums = __builtin_convertvector(wide_sums, half_i);
    half_f x = __builtin_convertvector(sums - INPUT_SUM_MEAN, half_f) * INPUT_SUM_UNIT;
    half_f limit = (half_f){0} + draw->limit;
    half_i above = x > limit, below = x < -limit;
    x = (half_f)(((half_i)x & ~above) | ((half_i)limit & above));
    x = (half_f)(((half_i)x & ~below) | ((half_i)-limit & below));
    return x * draw->factor;
}

static DRAW_TARGET void draw_elements(const struct input_draw *draw, uint64_t first, int64_t count,
                                      float *values)
{
    struct round_keys keys;
    round_keys_init(&keys, draw->seed, draw->tensor);
    lanes_w index = {0};
    for (int lane = 0; lane < WIDE_LANES; lane++)
        index[lane] = first + (uint64_t)lane;
    for (int64_t i = 0; i < count; i += WIDE_LANES, index += WIDE_LANES) {
        half_f x = value_of_sums(draw, block_sums(&keys, index));
        int64_t n = count - i;
        if (n >= WIDE_LANES)
            memcpy(values + i, &x, sizeof(x));
        else
            memcpy(values + i, &x, (size_t)n * sizeof(float));
    }
    if (draw->period == 0)
        return;
    for (uint64_t i = (draw->period - first % draw->period) % draw->period; i < (uint64_t)count;
         i += draw->period)
        values[i] = draw->constant;
}

const struct draw_ops DRAW_TABLE = {.name = DRAW_NAME, .draw = draw_elements};
