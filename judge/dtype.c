// SPDX-License-Identifier: Apache-2.0
#include "judge/dtype.h"

#include <stdbool.h>
#include <string.h>

#include "judge/clones.h"

#define INFINITY_BITS 0x7f800000u
#define INLINE        static inline __attribute__((always_inline))

// Length of an inner loop. It is fixed, the body has no branch, and arrays do not overlap, so that
// compilers can vectorize the loop.
#define BLOCK 32

INLINE uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

INLINE float value_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// x if the condition holds, else y. Without a branch, so that compilers do not move a sum or
// product of only one side into it.
INLINE uint32_t choose(bool condition, uint32_t x, uint32_t y)
{
    uint32_t mask = 0 - (uint32_t)condition;
    return (x & mask) | (y & ~mask);
}

INLINE float read_bf16(uint16_t element)
{
    return value_of((uint32_t)element << 16);
}

INLINE uint16_t write_bf16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1); // a carry beyond the range yields infinity
    uint32_t quiet = bits | 0x400000;
    return (uint16_t)(choose((bits & 0x7fffffff) > INFINITY_BITS, quiet, rounded) >> 16);
}

// The exponent of fp16 is 112 less than that of fp32. Denormals are multiples of 2^-24.
INLINE float read_fp16(uint16_t element)
{
    uint32_t magnitude = element & 0x7fffu;
    uint32_t denormal = bits_of((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t finite = choose(magnitude < 0x400, denormal, (magnitude << 13) + (112u << 23));
    uint32_t special = INFINITY_BITS | magnitude << 13;
    uint32_t sign = (uint32_t)(element & 0x8000u) << 16;
    return value_of(choose(magnitude < 0x7c00, finite, special) | sign);
}

// Adding 1/2 to a magnitude below 2^-14 rounds it to a multiple of 2^-24, which is left in the low
// bits of the sum.
INLINE uint16_t write_fp16(float value)
{
    uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t denormal = bits_of(value_of(magnitude) + 0.5f) - 0x3f000000;
    uint32_t quiet = 0x7e00 | (magnitude >> 13 & 0x3ff);
    uint32_t half = choose(magnitude < 0x38800000, denormal, normal);
    half = choose(magnitude >= 0x477ff000, 0x7c00, half); // 65520 and up
    half = choose(magnitude > INFINITY_BITS, quiet, half);
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

INLINE float read_one(enum case_dtype dtype, uint16_t element)
{
    return dtype == DTYPE_BF16 ? read_bf16(element) : read_fp16(element);
}

INLINE uint16_t write_one(enum case_dtype dtype, float value)
{
    return dtype == DTYPE_BF16 ? write_bf16(value) : write_fp16(value);
}

INLINE void read_16(enum case_dtype dtype, const uint16_t *restrict data, float *restrict values,
                    int64_t count)
{
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK)
        for (int j = 0; j < BLOCK; j++)
            values[i + j] = read_one(dtype, data[i + j]);
    for (; i < count; i++)
        values[i] = read_one(dtype, data[i]);
}

INLINE void write_16(enum case_dtype dtype, const float *restrict values, uint16_t *restrict data,
                     int64_t count)
{
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK)
        for (int j = 0; j < BLOCK; j++)
            data[i + j] = write_one(dtype, values[i + j]);
    for (; i < count; i++)
        data[i] = write_one(dtype, values[i]);
}

INLINE void round_16(enum case_dtype dtype, float *values, int64_t count)
{
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK)
        for (int j = 0; j < BLOCK; j++)
            values[i + j] = read_one(dtype, write_one(dtype, values[i + j]));
    for (; i < count; i++)
        values[i] = read_one(dtype, write_one(dtype, values[i]));
}

JUDGE_CLONES void dtype_read(enum case_dtype dtype, const void *data, int64_t first, int64_t count,
                             float *values)
{
    if (dtype == DTYPE_FP32)
        memcpy(values, (const float *)data + first, (size_t)count * sizeof(float));
    else if (dtype == DTYPE_BF16)
        read_16(DTYPE_BF16, (const uint16_t *)data + first, values, count);
    else
        read_16(DTYPE_FP16, (const uint16_t *)data + first, values, count);
}

JUDGE_CLONES void dtype_write(enum case_dtype dtype, const float *values, int64_t count, void *data)
{
    if (dtype == DTYPE_FP32)
        memcpy(data, values, (size_t)count * sizeof(float));
    else if (dtype == DTYPE_BF16)
        write_16(DTYPE_BF16, values, data, count);
    else
        write_16(DTYPE_FP16, values, data, count);
}

JUDGE_CLONES void dtype_round(enum case_dtype dtype, float *values, int64_t count)
{
    if (dtype == DTYPE_BF16)
        round_16(DTYPE_BF16, values, count);
    else if (dtype == DTYPE_FP16)
        round_16(DTYPE_FP16, values, count);
}
