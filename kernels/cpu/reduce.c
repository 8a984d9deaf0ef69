// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/reduce.h"

#include <math.h>
#include <stdbool.h>

#include "kernels/dtype.h"

// ---- one element --------------------------------------------------------------------------------

// Gives every NaN the same bits, so that results do not depend on the order of the operands.
static inline float quiet(float x)
{
    return x == x ? x : NAN;
}

// Returns a, where a == b. Only zeros can differ in bits: if one is -0 and one +0, the result is -0
// if `any` is set, else +0.
static inline float equal_one(float a, float b, bool any)
{
    union {
        float value;
        uint32_t bits;
    } x = {.value = a}, y = {.value = b};
    x.bits = any ? x.bits | y.bits : x.bits & y.bits;
    return x.value;
}

// minimum and maximum of IEEE 754-2019: NaN if an operand is NaN; -0 is less than +0.
static inline float least_float(float a, float b)
{
    float least = b < a ? b : a;
    least = a == b ? equal_one(a, b, true) : least;
    return a == a && b == b ? least : NAN;
}

static inline float most_float(float a, float b)
{
    float most = b > a ? b : a;
    most = a == b ? equal_one(a, b, false) : most;
    return a == a && b == b ? most : NAN;
}

#define ORDER(type)                                                                                \
    static inline type least_##type(type a, type b)                                                \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type most_##type(type a, type b)                                                 \
    {                                                                                              \
        return b > a ? b : a;                                                                      \
    }
ORDER(int32_t)
ORDER(int64_t)
ORDER(uint8_t)

// ---- arrays -------------------------------------------------------------------------------------

// One loop for each type and reduction. Integers are added and multiplied as unsigned numbers,
// whose overflow is defined.
#define SAME(x) (x)
#define LOOP(expression)                                                                           \
    for (int64_t i = 0; i < count; i++)                                                            \
    to[i] = (expression)
#define REDUCE(name, type, wide, finished)                                                         \
    static void name(enum collective_reduction reduction, const type *from, type *to,              \
                     int64_t count)                                                                \
    {                                                                                              \
        switch (reduction) {                                                                       \
        case REDUCTION_PROD:                                                                       \
            LOOP(finished((type)((wide)to[i] * (wide)from[i])));                                   \
            break;                                                                                 \
        case REDUCTION_MIN:                                                                        \
            LOOP(least_##type(to[i], from[i]));                                                    \
            break;                                                                                 \
        case REDUCTION_MAX:                                                                        \
            LOOP(most_##type(to[i], from[i]));                                                     \
            break;                                                                                 \
        default:                                                                                   \
            LOOP(finished((type)((wide)to[i] + (wide)from[i])));                                   \
            break;                                                                                 \
        }                                                                                          \
    }
REDUCE(reduce_float, float, float, quiet)
REDUCE(reduce_int32, int32_t, uint32_t, SAME)
REDUCE(reduce_int64, int64_t, uint64_t, SAME)
REDUCE(reduce_uint8, uint8_t, uint32_t, SAME)

// 16-bit elements are reduced in fp32, PIECE at a time.
#define PIECE 256

static enum case_dtype dtype_of(enum collective_element element)
{
    return element == ELEMENT_FP16 ? DTYPE_FP16 : element == ELEMENT_BF16 ? DTYPE_BF16 : DTYPE_FP32;
}

static void load(enum collective_element element, const void *data, int64_t first, int64_t count,
                 float *values)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = dtype_load(dtype_of(element), data, first + i);
}

static void store(enum collective_element element, const float *values, int64_t first,
                  int64_t count, void *data)
{
    for (int64_t i = 0; i < count; i++)
        dtype_store(dtype_of(element), data, first + i, values[i]);
}

static void reduce_16(enum collective_element element, enum collective_reduction reduction,
                      const void *source, void *destination, int64_t count)
{
    float from[PIECE], to[PIECE];
    for (int64_t first = 0; first < count; first += PIECE) {
        int64_t some = count - first < PIECE ? count - first : PIECE;
        load(element, source, first, some, from);
        load(element, destination, first, some, to);
        reduce_float(reduction, from, to, some);
        store(element, to, first, some, destination);
    }
}

void cpu_reduce(struct attention_backend *backend, enum collective_element element,
                enum collective_reduction reduction, const void *source, void *destination,
                int64_t count)
{
    (void)backend;
    switch (element) {
    case ELEMENT_FP32:
        reduce_float(reduction, source, destination, count);
        break;
    case ELEMENT_INT32:
        reduce_int32(reduction, source, destination, count);
        break;
    case ELEMENT_INT64:
        reduce_int64(reduction, source, destination, count);
        break;
    case ELEMENT_UINT8:
        reduce_uint8(reduction, source, destination, count);
        break;
    default:
        reduce_16(element, reduction, source, destination, count);
        break;
    }
}

// ---- averages ----

static void divide_real(enum collective_element element, int divisor, void *destination,
                        int64_t count)
{
    float values[PIECE];
    for (int64_t first = 0; first < count; first += PIECE) {
        int64_t some = count - first < PIECE ? count - first : PIECE;
        load(element, destination, first, some, values);
        for (int64_t i = 0; i < some; i++)
            values[i] = quiet(values[i] / (float)divisor);
        store(element, values, first, some, destination);
    }
}

#define DIVIDE(type)                                                                               \
    for (int64_t i = 0; i < count; i++)                                                            \
    ((type *)destination)[i] = (type)(((type *)destination)[i] / divisor)

void cpu_divide(struct attention_backend *backend, enum collective_element element, int divisor,
                void *destination, int64_t count)
{
    (void)backend;
    switch (element) {
    case ELEMENT_INT32:
        DIVIDE(int32_t);
        break;
    case ELEMENT_INT64:
        DIVIDE(int64_t);
        break;
    case ELEMENT_UINT8:
        DIVIDE(uint8_t);
        break;
    default:
        divide_real(element, divisor, destination, count);
        break;
    }
}
