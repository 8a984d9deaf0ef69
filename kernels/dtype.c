// SPDX-License-Identifier: Apache-2.0
#include "kernels/dtype.h"

#include <string.h>

#define FLOAT_INFINITY_BITS 0x7f800000u
#define FLOAT_QUIET_BIT     0x00400000u
#define HALF_INFINITY_BITS  0x7c00u
#define HALF_QUIET_BIT      0x0200u

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// Drops the low `count` bits; rounds to nearest, ties to even.
static uint32_t round_off(uint32_t value, int count)
{
    uint32_t odd = value >> count & 1;
    return (value + (UINT32_C(1) << (count - 1)) - 1 + odd) >> count;
}

static uint16_t bf16_of_float(float value)
{
    uint32_t bits = float_bits(value);
    if ((bits & ~UINT32_C(0x80000000)) > FLOAT_INFINITY_BITS)
        return (uint16_t)((bits | FLOAT_QUIET_BIT) >> 16);
    return (uint16_t)round_off(bits, 16); // overflow carries into the exponent: infinity
}

static float float_of_fp16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1f, fraction = half & 0x3ffu;
    if (exponent == 0x1f)
        return float_of(sign | FLOAT_INFINITY_BITS | fraction << 13);
    if (exponent != 0)
        return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

static uint16_t fp16_of_float(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > FLOAT_INFINITY_BITS)
        return (uint16_t)(sign | HALF_INFINITY_BITS | HALF_QUIET_BIT | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) // 65520 and up round to infinity
        return (uint16_t)(sign | HALF_INFINITY_BITS);
    if (magnitude >= 0x38800000u) // 2^-14, the smallest normal
        return (uint16_t)(sign | round_off(magnitude - (UINT32_C(112) << 23), 13));
    int shift = 126 - (int)(magnitude >> 23); // from the 24-bit significand to units of 2^-24
    if (shift > 24)
        return (uint16_t)sign;
    return (uint16_t)(sign | round_off((magnitude & 0x7fffffu) | 0x800000u, shift));
}

int dtype_bytes(enum case_dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
    case DTYPE_FP16:
        return 2;
    case DTYPE_FP32:
        return 4;
    }
    return 0;
}

float dtype_load(enum case_dtype dtype, const void *data, int64_t index)
{
    if (dtype == DTYPE_FP32)
        return ((const float *)data)[index];
    uint16_t half = ((const uint16_t *)data)[index];
    return dtype == DTYPE_BF16 ? float_of((uint32_t)half << 16) : float_of_fp16(half);
}

void dtype_store(enum case_dtype dtype, void *data, int64_t index, float value)
{
    if (dtype == DTYPE_FP32)
        ((float *)data)[index] = value;
    else
        ((uint16_t *)data)[index] =
            dtype == DTYPE_BF16 ? bf16_of_float(value) : fp16_of_float(value);
}
