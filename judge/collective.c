// SPDX-License-Identifier: Apache-2.0
#include "judge/collective.h"

#include <math.h>
#include <string.h>

#include "judge/dtype.h"
#include "judge/philox.h"

// An element as a number: real ones exactly, whole ones as they are.
union number {
    double real;
    int64_t whole;
};

// ---- elements -----------------------------------------------------------------------------------

static enum case_dtype dtype_of(enum collective_element element)
{
    return element == ELEMENT_FP16 ? DTYPE_FP16 : element == ELEMENT_BF16 ? DTYPE_BF16 : DTYPE_FP32;
}

// To nearest even in the dtype. Sums and products of two of its numbers are exact in fp32 here, so
// that nothing is rounded twice.
static double rounded(enum collective_element element, double value)
{
    float narrow = (float)value;
    uint32_t bits;
    if (element == ELEMENT_FP32)
        return (double)narrow;
    if (element == ELEMENT_FP16) {
#ifdef __FLT16_MAX__
        return (double)(_Float16)narrow;
#else
        dtype_round(DTYPE_FP16, &narrow, 1);
        return (double)narrow;
#endif
    }
    memcpy(&bits, &narrow, sizeof(bits));
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&narrow, &bits, sizeof(bits));
    return (double)narrow;
}

// Significant bits, the hidden one included.
static int precision(enum collective_element element)
{
    return element == ELEMENT_FP16 ? 11 : element == ELEMENT_BF16 ? 8 : 24;
}

static int64_t truncated(enum collective_element element, uint64_t value)
{
    return element == ELEMENT_UINT8   ? (int64_t)(uint8_t)value
           : element == ELEMENT_INT32 ? (int64_t)(int32_t)value
                                      : (int64_t)value;
}

// Numbers that the dtype holds: as many bits as it has, spread over [-1, 1) and down to an eighth
// of that. Factors are near 1, so that products of 64 neither vanish nor overflow in fp16.
static double drawn_real(const struct collective *c, uint64_t bits)
{
    int p = precision(c->dtype);
    bool factor = collective_reduces(c) && c->reduction == REDUCTION_PROD;
    int32_t steps = (int32_t)(bits >> 32) >> (32 - p + (factor ? 3 : 0));
    double spread = ldexp(steps, 1 - p);
    if (factor)
        return (bits & 1 ? -1 : 1) * (1 + spread);
    return ldexp(spread, -(int)(bits & 3));
}

// Factors are odd, so that a product never becomes 0; what is averaged has room for 64 of it.
static int64_t drawn_whole(const struct collective *c, uint64_t bits)
{
    bool reduces = collective_reduces(c);
    if (reduces && c->reduction == REDUCTION_PROD)
        bits |= 1;
    if (reduces && c->reduction == REDUCTION_AVG && c->dtype == ELEMENT_INT32)
        return (int64_t)(int32_t)bits >> 8;
    if (reduces && c->reduction == REDUCTION_AVG && c->dtype == ELEMENT_INT64)
        return (int64_t)bits >> 8;
    return truncated(c->dtype, bits);
}

// Element `index` of the send of a rank.
static union number drawn(const struct collective *c, int rank, int64_t index)
{
    struct philox_block counter = {
        {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)rank, 0x436f6c6cu}};
    struct philox_block block = philox_block(counter, c->seed);
    uint64_t bits = (uint64_t)block.word[0] << 32 | block.word[1];
    union number number;
    if (collective_is_real(c->dtype))
        number.real = drawn_real(c, bits);
    else
        number.whole = drawn_whole(c, bits);
    return number;
}

static int64_t read_whole(const struct collective *c, const void *data, int64_t index)
{
    return c->dtype == ELEMENT_INT32   ? ((const int32_t *)data)[index]
           : c->dtype == ELEMENT_INT64 ? ((const int64_t *)data)[index]
                                       : ((const uint8_t *)data)[index];
}

// Elements that are drawn, read or written at a time.
#define PIECE 256

// Elements [first, first + count) of the send of a rank, as they lie in memory.
static void drawn_write(const struct collective *c, int rank, int64_t first, int64_t count,
                        void *data)
{
    float values[PIECE];
    for (int64_t i = 0; i < count; i++) {
        union number number = drawn(c, rank, first + i);
        if (collective_is_real(c->dtype))
            values[i] = (float)number.real;
        else if (c->dtype == ELEMENT_INT32)
            ((int32_t *)data)[i] = (int32_t)number.whole;
        else if (c->dtype == ELEMENT_INT64)
            ((int64_t *)data)[i] = number.whole;
        else
            ((uint8_t *)data)[i] = (uint8_t)number.whole;
    }
    if (collective_is_real(c->dtype))
        dtype_write(dtype_of(c->dtype), values, count, data);
}

void collective_fill(const struct collective *c, int rank, void *send)
{
    int64_t count = collective_send_count(c, rank);
    int bytes = collective_element_bytes(c->dtype);
    for (int64_t first = 0; first < count; first += PIECE) {
        int64_t some = count - first < PIECE ? count - first : PIECE;
        drawn_write(c, rank, first, some, (char *)send + first * bytes);
    }
}

// ---- what is right ------------------------------------------------------------------------------

// Where an element of a receive comes from: the same index of all sends, or one of one.
struct origin {
    int rank; // -1: all
    int64_t index;
};

// The element of an all_to_all(v): blocks of messages, one of each rank.
static struct origin origin_of_message(const struct collective *c, int rank, int64_t index)
{
    struct origin origin = {.rank = 0, .index = index};
    while (origin.index >= collective_message(c, origin.rank, rank))
        origin.index -= collective_message(c, origin.rank++, rank);
    for (int to = 0; to < rank; to++)
        origin.index += collective_message(c, origin.rank, to);
    return origin;
}

static struct origin origin_of(const struct collective *c, int rank, int64_t index)
{
    switch (c->operation) {
    case COLLECTIVE_REDUCE_SCATTER:
        return (struct origin){-1, rank * c->count + index};
    case COLLECTIVE_ALL_GATHER:
        return (struct origin){(int)(index / c->count), index % c->count};
    case COLLECTIVE_ALL_TO_ALL:
    case COLLECTIVE_ALL_TO_ALLV:
        return origin_of_message(c, rank, index);
    case COLLECTIVE_BROADCAST:
        return (struct origin){c->root, index};
    case COLLECTIVE_SEND_RECEIVE:
        return (struct origin){(rank + c->world_size - 1) % c->world_size, index};
    default:
        return (struct origin){-1, index};
    }
}

// The right value of a real element, what it may be off, and the twin's value.
struct right {
    double value, bound, twin;
};

// What an element may be off, in parts of what is added up. The 1e-12 are fp64's own.
static double bound_of(const struct collective *c)
{
    int roundings = c->world_size - 1 + (c->reduction == REDUCTION_AVG && c->world_size > 1);
    return pow(1 + ldexp(1, -precision(c->dtype)), roundings) - 1 + 1e-12;
}

static struct right right_sum(const struct collective *c, double bound, int64_t index)
{
    bool product = c->reduction == REDUCTION_PROD;
    bool averages = c->reduction == REDUCTION_AVG && c->world_size > 1;
    struct right right = {product, 0, product};
    double sizes = 0;
    for (int rank = 0; rank < c->world_size; rank++) {
        double x = drawn(c, rank, index).real;
        right.value = product ? right.value * x : right.value + x;
        right.twin = rounded(c->dtype, product ? right.twin * x : right.twin + x);
        sizes = product ? fabs(right.value) : sizes + fabs(x);
    }
    if (averages) {
        right.value /= c->world_size;
        right.twin = rounded(c->dtype, right.twin / c->world_size);
        sizes /= c->world_size;
    }
    right.bound = bound * sizes;
    return right;
}

static struct right right_real(const struct collective *c, double bound, struct origin origin)
{
    if (origin.rank >= 0) {
        double x = drawn(c, origin.rank, origin.index).real;
        return (struct right){x, 0, x};
    }
    if (c->reduction != REDUCTION_MIN && c->reduction != REDUCTION_MAX)
        return right_sum(c, bound, origin.index);
    double most = drawn(c, 0, origin.index).real;
    for (int rank = 1; rank < c->world_size; rank++) {
        double x = drawn(c, rank, origin.index).real;
        most = (c->reduction == REDUCTION_MAX ? x > most : x < most) ? x : most;
    }
    return (struct right){most, 0, most};
}

static int64_t reduced_whole(const struct collective *c, int64_t a, int64_t b)
{
    switch (c->reduction) {
    case REDUCTION_PROD:
        return truncated(c->dtype, (uint64_t)a * (uint64_t)b);
    case REDUCTION_MIN:
        return a < b ? a : b;
    case REDUCTION_MAX:
        return a > b ? a : b;
    default:
        return truncated(c->dtype, (uint64_t)a + (uint64_t)b);
    }
}

static int64_t right_whole(const struct collective *c, struct origin origin)
{
    if (origin.rank >= 0)
        return drawn(c, origin.rank, origin.index).whole;
    int64_t right = drawn(c, 0, origin.index).whole;
    for (int rank = 1; rank < c->world_size; rank++)
        right = reduced_whole(c, right, drawn(c, rank, origin.index).whole);
    return c->reduction == REDUCTION_AVG ? right / c->world_size : right;
}

// ---- the verdict --------------------------------------------------------------------------------

// Fewer errors of a twin are no measure of another's.
#define TWIN_ELEMENTS_MIN 64

struct sums {
    double error2, twin2, bound2, right2, along; // of squares, and of error * right
};

static void bad_note(struct figures *f, int64_t index, double got, double expected)
{
    if (f->mismatches++ > 0)
        return;
    f->broken |= RULE_ELEMENT;
    f->first_bad = (struct element){.position = index};
    f->first_bad_got = got;
    f->first_bad_expected = expected;
}

static void real_compare(int64_t index, double got, const struct right *is, struct sums *sums,
                         struct figures *f)
{
    struct right right = *is;
    double error = got - right.value;
    double used = error == 0 ? 0 : fabs(error) / right.bound; // infinite where it has to be exact
    if (!isfinite(got)) {
        f->nonfinite++;
        f->broken |= RULE_NONFINITE;
        used = INFINITY;
    } else {
        sums->error2 += error * error;
        sums->along += error * right.value;
        f->max_abs = fmax(f->max_abs, fabs(error));
    }
    sums->right2 += right.value * right.value;
    sums->bound2 += right.bound * right.bound;
    sums->twin2 += (right.twin - right.value) * (right.twin - right.value);
    f->worst_element = fmax(f->worst_element, used);
    if (!(used <= 1))
        bad_note(f, index, got, right.value);
}

static void real_finish(const struct sums *sums, struct figures *f)
{
    double n = (double)f->elements;
    if (n == 0 || sums->right2 == 0)
        return;
    f->rmse_rel = sqrt(sums->error2 / sums->right2);
    f->twin_rel = sqrt(sums->twin2 / sums->right2);
    f->rmse_limit = n < TWIN_ELEMENTS_MIN ? sqrt(sums->bound2 / sums->right2)
                                          : (1.5 + 6 / sqrt(n)) * f->twin_rel;
    f->slope = sums->along / sums->right2;
    if (f->rmse_rel > f->rmse_limit)
        f->broken |= RULE_RMSE;
}

static void whole_compare(int64_t index, int64_t got, int64_t right, struct figures *f)
{
    if (got == right)
        return;
    bad_note(f, index, (double)got, (double)right);
    f->worst_element = INFINITY;
    f->max_abs = fmax(f->max_abs, fabs((double)got - (double)right));
}

void collective_judge(const struct collective *c, int rank, const void *receive,
                      struct figures *figures)
{
    struct figures f = *figures;
    struct sums sums = {0, 0, 0, 0, 0};
    bool real = collective_is_real(c->dtype);
    double bound = bound_of(c);
    float got[PIECE];
    f.elements = f.judged = collective_receive_count(c, rank);
    for (int64_t i = 0; i < f.elements; i++) {
        int64_t left = f.elements - i;
        struct origin origin = origin_of(c, rank, i);
        if (real && i % PIECE == 0)
            dtype_read(dtype_of(c->dtype), receive, i, left < PIECE ? left : PIECE, got);
        if (real) {
            struct right right = right_real(c, bound, origin);
            real_compare(i, (double)got[i % PIECE], &right, &sums, &f);
        } else {
            whole_compare(i, read_whole(c, receive, i), right_whole(c, origin), &f);
        }
    }
    real_finish(&sums, &f);
    *figures = f;
}

void collective_judge_send(const struct collective *c, int rank, const void *send,
                           const void *receive, struct figures *figures)
{
    int bytes = collective_element_bytes(c->dtype);
    const char *begin = receive, *end = begin;
    _Alignas(8) char right[PIECE * 8]; // elements as they were filled
    if (receive)
        end += collective_receive_count(c, rank) * bytes;
    figures->elements = figures->judged = collective_send_count(c, rank);
    for (int64_t i = 0; i < figures->elements; i++) {
        const char *at = (const char *)send + i * bytes;
        if (i % PIECE == 0)
            drawn_write(c, rank, i, figures->elements - i < PIECE ? figures->elements - i : PIECE,
                        right);
        if (receive && at >= begin && at < end)
            continue;
        if (memcmp(at, right + i % PIECE * bytes, (size_t)bytes) == 0)
            continue;
        if (figures->mismatches++ == 0)
            figures->first_bad = (struct element){.position = i};
        figures->broken |= RULE_PADDING;
    }
}
