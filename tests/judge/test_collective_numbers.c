// SPDX-License-Identifier: Apache-2.0
// Collectives with a mistake in the received numbers or in the order of blocks: the diagnosis names
// the mistake.
#include "tests/support/runner.h"

#include <math.h>
#include <string.h>

#include "judge/collective_diagnosis.h"
#include "judge/collective_numbers.h"
#include "judge/dtype.h"

enum { RANKS = 4, RANK = 1, COUNT = 64, FILL = 0xa5 };

typedef union view_number make(const struct collective_view *v, int64_t index);

// ---- mistakes -----------------------------------------------------------------------------------

static double rounded(enum case_dtype dtype, double x)
{
    float value = (float)x;
    dtype_round(dtype, &value, 1);
    return value;
}

static union view_number real(double x)
{
    return (union view_number){.real = x};
}

static union view_number whole(int64_t x)
{
    return (union view_number){.whole = x};
}

// Right results.
static union view_number in_order(const struct collective_view *v, int64_t index)
{
    float sum = 0;
    for (int rank = 0; rank < RANKS; rank++)
        sum += (float)view_drawn(v, rank, index).real;
    return real(sum);
}

static union view_number zero(const struct collective_view *v, int64_t index)
{
    (void)v, (void)index;
    return real(0);
}

// The fp32 number whose bytes are all FILL.
static union view_number unwritten(const struct collective_view *v, int64_t index)
{
    float value;
    (void)v, (void)index;
    memset(&value, FILL, sizeof(value));
    return real(value);
}

// Returns a number a little outside of its limit, rounded to fp32.
static union view_number just_outside(const struct collective_view *v, int64_t index)
{
    double error = 1.6 * v->bound * collective_numbers_size(v, index);
    return real((float)(in_order(v, index).real + (index % 2 ? error : -error)));
}

// A ring that reduces in blocks and ends one step early: each block lacks another rank.
static union view_number one_step_short(const struct collective_view *v, int64_t index)
{
    int32_t lost = (int32_t)(index * RANKS / COUNT + 1) % RANKS;
    return real((float)(in_order(v, index).real - view_drawn(v, lost, index).real));
}

static union view_number block_twice(const struct collective_view *v, int64_t index)
{
    int32_t twice = (int32_t)(index * RANKS / COUNT);
    int64_t sum = view_drawn(v, twice, index).whole;
    for (int rank = 0; rank < RANKS; rank++)
        sum += view_drawn(v, rank, index).whole;
    return whole(view_truncated(v, (uint64_t)sum));
}

static union view_number added_in_bf16(const struct collective_view *v, int64_t index)
{
    double sum = 0;
    for (int rank = RANKS - 1; rank >= 0; rank--)
        sum = rounded(DTYPE_BF16, sum + rounded(DTYPE_BF16, view_drawn(v, rank, index).real));
    return real(sum);
}

static union view_number sent_in_fp16(const struct collective_view *v, int64_t index)
{
    double sum = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        double x = view_drawn(v, rank, index).real;
        sum += rank == RANK ? x : rounded(DTYPE_FP16, x);
    }
    return real((float)sum);
}

static union view_number not_reduced(const struct collective_view *v, int64_t index)
{
    return view_drawn(v, RANK, index);
}

static union view_number in_32_bits(const struct collective_view *v, int64_t index)
{
    uint32_t sum = 0;
    for (int rank = 0; rank < RANKS; rank++)
        sum += (uint32_t)view_drawn(v, rank, index).whole;
    return whole((int32_t)sum);
}

static union view_number saturating(const struct collective_view *v, int64_t index)
{
    int64_t sum = 0;
    for (int rank = 0; rank < RANKS; rank++) {
        sum += view_drawn(v, rank, index).whole;
        sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
    }
    return whole(sum);
}

static union view_number as_floats(const struct collective_view *v, int64_t index)
{
    float sum = 0;
    for (int rank = 0; rank < RANKS; rank++)
        sum += (float)view_drawn(v, rank, index).whole;
    return whole(fabsf(sum) >= 0x1p31F ? INT32_MIN : (int64_t)sum);
}

static union view_number as_signed(const struct collective_view *v, int64_t index)
{
    int8_t most = INT8_MIN;
    for (int rank = 0; rank < RANKS; rank++) {
        int8_t x = (int8_t)view_drawn(v, rank, index).whole;
        most = x > most ? x : most;
    }
    return whole((uint8_t)most);
}

static union view_number rounded_down(const struct collective_view *v, int64_t index)
{
    int64_t sum = 0;
    for (int rank = 0; rank < RANKS; rank++)
        sum += view_drawn(v, rank, index).whole;
    return whole((int64_t)floor((double)sum / RANKS));
}

static union view_number positive_zeros(const struct collective_view *v, int64_t index)
{
    return real(view_drawn(v, (int32_t)(index / COUNT), index % COUNT).real + 0.0);
}

static union view_number no_denormals(const struct collective_view *v, int64_t index)
{
    double x = view_drawn(v, (int32_t)(index / COUNT), index % COUNT).real;
    return real(fabs(x) < 0x1p-126 ? copysign(0, x) : x);
}

static union view_number from_next(const struct collective_view *v, int64_t index)
{
    return view_drawn(v, (int32_t)(index / COUNT + 1) % RANKS, index % COUNT);
}

static union view_number backwards(const struct collective_view *v, int64_t index)
{
    return view_drawn(v, RANKS - 1 - (int32_t)(index / COUNT), index % COUNT);
}

static union view_number from_itself(const struct collective_view *v, int64_t index)
{
    return view_drawn(v, RANK, index % COUNT);
}

static union view_number by_turns(const struct collective_view *v, int64_t index)
{
    return view_drawn(v, (int32_t)(index % RANKS), index / RANKS);
}

static union view_number not_exchanged(const struct collective_view *v, int64_t index)
{
    return view_drawn(v, RANK, index);
}

// ---- the table ----------------------------------------------------------------------------------

static const struct {
    enum collective_operation operation;
    enum collective_element element;
    enum collective_reduction reduction;
    bool specials;
    make *make;
    enum collective_mistake mistake;
    const char *says;
} mistakes[] = {
    {COLLECTIVE_ALL_REDUCE, ELEMENT_FP32, REDUCTION_SUM, false, in_order, MISTAKE_NONE, ""},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_FP32, REDUCTION_SUM, false, zero, MISTAKE_ZERO,
     "the elements are zero"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_FP32, REDUCTION_SUM, false, unwritten, MISTAKE_UNTOUCHED,
     "the memory was never written"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_FP32, REDUCTION_SUM, false, just_outside, MISTAKE_NONE, ""},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_FP32, REDUCTION_SUM, false, one_step_short, MISTAKE_BLOCK_SUMS,
     "the 4 blocks of the elements are sums of other ranks: block 0 lacks rank 1; block 1 lacks "
     "rank 2; block 2 lacks rank 3; block 3 lacks rank 0"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_INT32, REDUCTION_SUM, false, block_twice, MISTAKE_BLOCK_SUMS,
     "the 4 blocks of the elements are sums of other ranks: block 0 has twice rank 0; block 1 has "
     "twice rank 1; block 2 has twice rank 2; block 3 has twice rank 3"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_FP32, REDUCTION_SUM, false, added_in_bf16, MISTAKE_NARROW_SUM,
     "the elements have only the precision of bf16: it is reduced in bf16"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_FP32, REDUCTION_SUM, false, sent_in_fp16, MISTAKE_NARROW_INPUT,
     "the elements of other ranks are rounded to fp16 or TF32 before they are reduced"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_FP32, REDUCTION_AVG, false, not_reduced, MISTAKE_UNREDUCED,
     "the elements are those of rank 1, not reduced"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_INT64, REDUCTION_SUM, false, in_32_bits, MISTAKE_LOWER_HALF,
     "only the lower 32 bits are right: it is computed in 32 bits"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_INT32, REDUCTION_SUM, false, saturating, MISTAKE_SATURATED,
     "integers stop at the end of their range instead of wrapping around"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_INT32, REDUCTION_SUM, false, as_floats, MISTAKE_FLOATING,
     "the integers are computed as real numbers of fp32"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_UINT8, REDUCTION_MAX, false, as_signed, MISTAKE_SIGNED,
     "the elements are compared as signed numbers"},
    {COLLECTIVE_ALL_REDUCE, ELEMENT_INT32, REDUCTION_AVG, false, rounded_down,
     MISTAKE_AVERAGE_ROUNDS, "the average is rounded down instead of towards zero"},
    {COLLECTIVE_ALL_GATHER, ELEMENT_FP32, 0, true, positive_zeros, MISTAKE_ZERO_SIGN,
     "zeros have the wrong sign"},
    {COLLECTIVE_ALL_GATHER, ELEMENT_FP32, 0, true, no_denormals, MISTAKE_DENORMAL,
     "denormals are zero"},
    {COLLECTIVE_ALL_GATHER, ELEMENT_FP32, 0, false, from_next, MISTAKE_ROTATED,
     "the blocks are rotated: each is that of the rank 1 further"},
    {COLLECTIVE_ALL_GATHER, ELEMENT_INT32, 0, false, backwards, MISTAKE_REVERSED,
     "the blocks are in reverse order"},
    {COLLECTIVE_ALL_GATHER, ELEMENT_FP32, 0, false, from_itself, MISTAKE_OWN_SEND,
     "the blocks are from the send of rank 1 itself"},
    {COLLECTIVE_ALL_GATHER, ELEMENT_FP32, 0, false, by_turns, MISTAKE_INTERLEAVED,
     "the elements of the ranks take turns: they are not in blocks"},
    {COLLECTIVE_ALL_TO_ALL, ELEMENT_UINT8, 0, false, not_exchanged, MISTAKE_OWN_SEND,
     "the blocks are from the send of rank 1 itself"},
};

START_TEST(mistakes_are_named)
{
    struct collective c = {.world_size = RANKS,
                           .operation = mistakes[_i].operation,
                           .reduction = mistakes[_i].reduction,
                           .dtype = mistakes[_i].element,
                           .count = COUNT,
                           .seed = 7,
                           .specials = mistakes[_i].specials};
    struct collective_view v;
    struct collective_sample sample;
    struct diagnosis diagnosis = {.text = ""};
    struct figures figures = {.broken = 0};
    collective_view_set(&v, &c, RANK);
    collective_sample_choose(&v, 0, &sample);
    for (int i = 0; i < sample.count; i++)
        sample.got[i] = mistakes[_i].make(&v, sample.index[i]);
    enum collective_mistake found =
        collective_diagnose(&c, RANK, &sample, FILL, &figures, &diagnosis);
    ck_assert_msg(strcmp(diagnosis.text, mistakes[_i].says) == 0, "%s", diagnosis.text);
    ck_assert_int_eq(found, mistakes[_i].mistake);
}
END_TEST

// ---- factors too small to show in one element ---------------------------------------------------

enum { MANY = 8192 };

static const struct {
    enum collective_element element;
    enum collective_reduction reduction;
    double factor;
    bool cut;
    const char *says; // "": the results are right
} factors[] = {
    {ELEMENT_BF16, REDUCTION_SUM, 1, false, ""},
    {ELEMENT_BF16, REDUCTION_PROD, 1, false, ""},
    {ELEMENT_BF16, REDUCTION_SUM, 1.002, false, "every element is about 1.00"},
    {ELEMENT_FP16, REDUCTION_SUM, 0.9995, false, "every element is about 0.999"},
    {ELEMENT_BF16, REDUCTION_AVG, 1.003, false, "every element is about 1.00"},
    {ELEMENT_BF16, REDUCTION_SUM, 1, true, "every element is about 0.998"},
};

// Adds the elements in the order of ranks 1, 2, 3, 0 and rounds each partial sum, as a ring does.
static double in_a_ring(const struct collective_view *v, int64_t index)
{
    enum case_dtype dtype = v->element == ELEMENT_BF16 ? DTYPE_BF16 : DTYPE_FP16;
    union view_number sum = view_drawn(v, 1, index);
    for (int i = 2; i <= RANKS; i++) {
        sum = collective_numbers_combined(v, v->reduction, sum, view_drawn(v, i % RANKS, index));
        if (i < RANKS)
            sum.real = rounded(dtype, sum.real);
    }
    return v->reduction == REDUCTION_AVG ? sum.real / RANKS : sum.real;
}

// Truncates to 8 significant bits, as bf16 has.
static double cut_off(double x)
{
    int exponent;
    double mantissa = frexp(x, &exponent);
    return ldexp(trunc(256 * mantissa), exponent - 8);
}

START_TEST(factors_are_noticed)
{
    static float values[MANY];
    static uint16_t receive[MANY];
    struct collective c = {.world_size = RANKS,
                           .operation = COLLECTIVE_ALL_REDUCE,
                           .reduction = factors[_i].reduction,
                           .dtype = factors[_i].element,
                           .count = MANY,
                           .seed = 5};
    enum case_dtype dtype = factors[_i].element == ELEMENT_BF16 ? DTYPE_BF16 : DTYPE_FP16;
    struct collective_view v;
    struct collective_sample sample;
    struct diagnosis diagnosis = {.text = ""};
    struct figures figures = {.first_bad = {.position = -1}};
    collective_view_set(&v, &c, RANK);
    for (int i = 0; i < MANY; i++) {
        double x = in_a_ring(&v, i) * factors[_i].factor;
        values[i] = (float)(factors[_i].cut ? cut_off(x) : x);
    }
    dtype_write(dtype, values, MANY, receive);
    collective_judge_receive(&c, RANK, receive, &figures);
    ck_assert_int_eq(figures.mismatches, 0);
    ck_assert_msg(!figures.broken == !factors[_i].says[0], "slope %g of %g", figures.slope,
                  figures.slope_limit);
    collective_sample_choose(&v, figures.first_bad.position, &sample);
    for (int i = 0; i < sample.count; i++)
        sample.got[i] = collective_element(&v, receive, sample.index[i]);
    collective_diagnose(&c, RANK, &sample, FILL, &figures, &diagnosis);
    ck_assert_msg(strstr(diagnosis.text, factors[_i].says), "%s", diagnosis.text);
    ck_assert_int_eq(diagnosis.text[0] == '\0', factors[_i].says[0] == '\0');
}
END_TEST

// Copies that are multiplied by -1e-30. The diagnosis names no factor this small.
START_TEST(copies_are_almost_zero)
{
    static uint16_t receive[MANY];
    struct collective c = {.world_size = RANKS,
                           .operation = COLLECTIVE_BROADCAST,
                           .dtype = ELEMENT_BF16,
                           .count = MANY,
                           .seed = 5};
    struct collective_view v;
    struct collective_sample sample;
    struct diagnosis diagnosis = {.text = ""};
    struct figures figures = {.first_bad = {.position = -1}};
    collective_view_set(&v, &c, RANK);
    for (int i = 0; i < MANY; i++) {
        float x = (float)(view_drawn(&v, 0, i).real * -1e-30);
        dtype_write(DTYPE_BF16, &x, 1, &receive[i]);
    }
    collective_judge_receive(&c, RANK, receive, &figures);
    collective_sample_choose(&v, figures.first_bad.position, &sample);
    for (int i = 0; i < sample.count; i++)
        sample.got[i] = collective_element(&v, receive, sample.index[i]);
    collective_diagnose(&c, RANK, &sample, FILL, &figures, &diagnosis);
    ck_assert_msg(strstr(diagnosis.text, "every element is almost zero"), "%s", diagnosis.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collective_numbers");
    TCase *tcase = tcase_create("mistakes");
    tcase_add_loop_test(tcase, mistakes_are_named, 0, sizeof(mistakes) / sizeof(*mistakes));
    tcase_add_loop_test(tcase, factors_are_noticed, 0, sizeof(factors) / sizeof(*factors));
    tcase_add_test(tcase, copies_are_almost_zero);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
