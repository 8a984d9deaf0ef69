// SPDX-License-Identifier: Apache-2.0
#include "judge/collective_numbers.h"

#include <math.h>
#include <stdio.h>

#include "plan/collective.h"

// Values of `number` for MISTAKE_NARROW_INPUT and MISTAKE_NARROW_SUM, the narrowest dtype first.
// With an odd value the rank's own elements are exact.
enum { NARROW_BF16, NARROW_BF16_OTHERS, NARROW_FP16, NARROW_FP16_OTHERS };

static int narrow_element(int number)
{
    return number <= NARROW_BF16_OTHERS ? ELEMENT_BF16 : ELEMENT_FP16;
}

double collective_numbers_size(const struct collective_view *v, int64_t index)
{
    double sum = 0, product = 1;
    for (int rank = 0; rank < v->world_size; rank++) {
        double x = fabs(view_drawn(v, rank, index).real);
        sum += x;
        product *= x;
    }
    return v->reduction == REDUCTION_PROD ? product : sum;
}

union view_number collective_numbers_combined(const struct collective_view *v, int reduction,
                                              union view_number a, union view_number b)
{
    struct collective_view other = *v;
    other.reduction = reduction;
    union view_number result;
    if (!view_is_real(v))
        result.whole = view_reduced_whole(&other, a.whole, b.whole);
    else if (reduction == REDUCTION_PROD)
        result.real = a.real * b.real;
    else if (reduction == REDUCTION_MIN)
        result.real = fmin(a.real, b.real);
    else if (reduction == REDUCTION_MAX)
        result.real = fmax(a.real, b.real);
    else
        result.real = a.real + b.real;
    return result;
}

// ---- real numbers -------------------------------------------------------------------------------

static double narrowed(const struct collective_view *v, int element, double x)
{
    struct collective_view other = *v;
    other.element = element;
    return view_rounded(&other, x);
}

static double narrow_inputs(const struct collective_view *v, int number, int64_t index)
{
    union view_number sum = {.real = 0};
    for (int rank = 0; rank < v->world_size; rank++) {
        union view_number x = view_drawn(v, rank, index);
        if (number % 2 == 0 || rank != v->rank)
            x.real = narrowed(v, narrow_element(number), x.real);
        sum = rank == 0 ? x : collective_numbers_combined(v, v->reduction, sum, x);
    }
    return v->reduction == REDUCTION_AVG ? sum.real / v->world_size : sum.real;
}

// True if a delivered value has the precision of the narrow dtype and is as near to the right one
// as a reduction in that dtype.
static bool is_narrow_sum(const struct collective_view *v, int number, struct view_origin origin,
                          double got, double right)
{
    double step = narrow_element(number) == ELEMENT_BF16 ? 0x1p-8 : 0x1p-11;
    double size = origin.rank >= 0 ? fabs(right) : collective_numbers_size(v, origin.index);
    return narrowed(v, narrow_element(number), got) == got &&
           fabs(got - right) <= v->world_size * step * size;
}

static bool predict_real(const struct collective_view *v, enum collective_mistake mistake,
                         int number, int64_t index, double got, double *is)
{
    struct view_origin origin = view_origin_of(v, index);
    double right = view_right_real(v, origin).value;
    switch (mistake) {
    case MISTAKE_ZERO_SIGN:
        *is = right;
        return right == 0 && got == 0;
    case MISTAKE_DENORMAL:
        *is = 0;
        return right != 0 && fabs(right) < (v->element == ELEMENT_FP16 ? 0x1p-14 : 0x1p-126);
    case MISTAKE_NARROW_INPUT:
        *is = origin.rank < 0 ? narrow_inputs(v, number, origin.index)
                              : narrowed(v, narrow_element(number), right);
        return true;
    default: // of other elements this mistake predicts nothing
        *is = got;
        return is_narrow_sum(v, number, origin, got, right);
    }
}

// ---- integers -----------------------------------------------------------------------------------

static int64_t least_of(const struct collective_view *v)
{
    return v->element == ELEMENT_INT32 ? INT32_MIN : v->element == ELEMENT_INT64 ? INT64_MIN : 0;
}

static int64_t most_of(const struct collective_view *v)
{
    return v->element == ELEMENT_INT32   ? INT32_MAX
           : v->element == ELEMENT_INT64 ? INT64_MAX
                                         : UINT8_MAX;
}

static int64_t saturated(const struct collective_view *v, long double x)
{
    if (x >= (long double)most_of(v))
        return most_of(v);
    return x <= (long double)least_of(v) ? least_of(v) : (int64_t)x;
}

// A sum or product that saturates at the ends of the integer range after each operation.
static int64_t saturating(const struct collective_view *v, int64_t index)
{
    int64_t result = view_drawn(v, 0, index).whole;
    for (int rank = 1; rank < v->world_size; rank++) {
        long double x = (long double)view_drawn(v, rank, index).whole, so_far = (long double)result;
        result = saturated(v, v->reduction == REDUCTION_PROD ? so_far * x : so_far + x);
    }
    return result;
}

// The sum or product computed in floating point: fp32, or fp64 for 64-bit integers.
static double floating(const struct collective_view *v, int64_t index)
{
    bool wide = v->element == ELEMENT_INT64;
    double result = 0;
    for (int rank = 0; rank < v->world_size; rank++) {
        double x = (double)view_drawn(v, rank, index).whole;
        x = wide ? x : (double)(float)x;
        x = rank == 0 ? x : v->reduction == REDUCTION_PROD ? result * x : result + x;
        result = wide ? x : (double)(float)x;
    }
    return result;
}

// Converts the floating-point result to the integer dtype. If it overflows, either end of the range
// is accepted.
static int64_t from_floating(const struct collective_view *v, int64_t index, int64_t got)
{
    double x = floating(v, index);
    bool ends = got == least_of(v) || got == most_of(v);
    if (x >= (double)most_of(v) || x <= (double)least_of(v))
        return ends ? got : saturated(v, (long double)x);
    return (int64_t)x;
}

static int64_t most_signed(const struct collective_view *v, int64_t index)
{
    int8_t result = (int8_t)view_drawn(v, 0, index).whole;
    for (int rank = 1; rank < v->world_size; rank++) {
        int8_t x = (int8_t)view_drawn(v, rank, index).whole;
        result = (v->reduction == REDUCTION_MAX ? x > result : x < result) ? x : result;
    }
    return (uint8_t)result;
}

// The average rounded down (`number` 0) or to nearest (1).
static int64_t average(const struct collective_view *v, int number, int64_t index)
{
    int64_t sum = 0;
    for (int rank = 0; rank < v->world_size; rank++)
        sum = view_truncated(v, (uint64_t)sum + (uint64_t)view_drawn(v, rank, index).whole);
    double quotient = (double)sum / v->world_size;
    if (v->element == ELEMENT_INT64 && number == 0)
        return sum / v->world_size - (sum % v->world_size < 0);
    return (int64_t)(number == 0 ? floor(quotient) : nearbyint(quotient));
}

static bool predict_whole(const struct collective_view *v, enum collective_mistake mistake,
                          int number, int64_t index, int64_t got, int64_t *is)
{
    struct view_origin origin = view_origin_of(v, index);
    switch (mistake) {
    case MISTAKE_LOWER_HALF:
        *is = (int32_t)view_right_whole(v, origin);
        return true;
    case MISTAKE_SATURATED:
        *is = saturating(v, origin.index);
        return true;
    case MISTAKE_FLOATING:
        *is = from_floating(v, origin.index, got);
        return true;
    case MISTAKE_SIGNED:
        *is = most_signed(v, origin.index);
        return true;
    default:
        *is = average(v, number, origin.index);
        return true;
    }
}

// ---- both ---------------------------------------------------------------------------------------

bool collective_numbers_predict(const struct collective_view *v, enum collective_mistake mistake,
                                int number, int64_t index, union view_number got,
                                union view_number *is)
{
    if (view_is_real(v))
        return predict_real(v, mistake, number, index, got.real, &is->real);
    return predict_whole(v, mistake, number, index, got.whole, &is->whole);
}

bool collective_numbers_possible(const struct collective_view *v, enum collective_mistake mistake,
                                 int *low, int *high)
{
    bool real = view_is_real(v), reduced = v->source[0] < 0;
    bool adds = reduced && v->reduction != REDUCTION_MIN && v->reduction != REDUCTION_MAX;
    *low = *high = 0;
    switch (mistake) {
    case MISTAKE_ZERO_SIGN:
    case MISTAKE_DENORMAL:
        return real && v->specials;
    case MISTAKE_NARROW_INPUT:
    case MISTAKE_NARROW_SUM:
        *high = v->element == ELEMENT_FP16 ? NARROW_BF16_OTHERS : NARROW_FP16_OTHERS;
        return real && v->element != ELEMENT_BF16;
    case MISTAKE_LOWER_HALF:
        return v->element == ELEMENT_INT64;
    case MISTAKE_SATURATED:
    case MISTAKE_FLOATING:
        return !real && adds && v->reduction != REDUCTION_AVG;
    case MISTAKE_SIGNED:
        return v->element == ELEMENT_UINT8 && reduced && !adds;
    case MISTAKE_AVERAGE_ROUNDS:
        *high = 1;
        return !real && reduced && v->reduction == REDUCTION_AVG;
    default:
        return false;
    }
}

void collective_numbers_sentence(const struct collective_view *v, enum collective_mistake mistake,
                                 int number, char *text, size_t size)
{
    bool reduced = v->source[0] < 0;
    const char *narrow = number <= NARROW_BF16_OTHERS ? "bf16" : "fp16 or TF32";
    switch (mistake) {
    case MISTAKE_ZERO_SIGN:
        snprintf(text, size, "zeros have the wrong sign");
        break;
    case MISTAKE_DENORMAL:
        snprintf(text, size, "denormals are zero");
        break;
    case MISTAKE_NARROW_INPUT:
        snprintf(text, size, "the elements%s are rounded to %s before they are %s",
                 reduced && number % 2 ? " of other ranks" : "", narrow,
                 reduced ? "reduced" : "delivered");
        break;
    case MISTAKE_NARROW_SUM:
        snprintf(text, size, "the elements have only the precision of %s: it is reduced in %s",
                 narrow, narrow);
        break;
    case MISTAKE_LOWER_HALF:
        snprintf(text, size, "only the lower 32 bits are right: it is computed in 32 bits");
        break;
    case MISTAKE_SATURATED:
        snprintf(text, size, "integers stop at the end of their range instead of wrapping around");
        break;
    case MISTAKE_FLOATING:
        snprintf(text, size, "the integers are computed as real numbers of %s",
                 v->element == ELEMENT_INT64 ? "fp64" : "fp32");
        break;
    case MISTAKE_SIGNED:
        snprintf(text, size, "the elements are compared as signed numbers");
        break;
    default:
        snprintf(text, size, "the average is rounded %s instead of towards zero",
                 number == 0 ? "down" : "to nearest");
        break;
    }
}
