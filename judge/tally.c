// SPDX-License-Identifier: Apache-2.0
#include "judge/tally.h"

#include <math.h>
#include <string.h>

#include "judge/clones.h"

void tally_init(struct tally *t, struct rules rules, enum report_tensor tensor, int chunk, int dim,
                float *errors, float *twins)
{
    *t = (struct tally){.figures = {.tensor = tensor,
                                    .chunk = chunk,
                                    .worst_row.position = -1,
                                    .first_bad.position = -1},
                        .rules = rules,
                        .dim = dim,
                        .errors = errors,
                        .twins = twins};
}

// The unit of error of a row that must be zero.
#define UNIT_ZERO (-1)

// Handles an element whose result or reference is not finite. Returns the error to store: 0 if the
// element is right; else NAN, and the element is counted. Keeps the reference of the first one.
static float element_odd(struct tally *t, double got, double reference)
{
    if (rules_infinite(&t->rules, got, reference))
        return 0;
    if (t->sums.nonfinite++ == 0)
        t->refused_expected = reference;
    return NAN;
}

static double element_add(struct tally *t, double got, double reference)
{
    struct rules_sums *s = &t->sums;
    double error = got - reference;
    s->te_mismatches += !rules_te(&t->rules, got, reference);
    s->error_squares += error * error;
    s->reference_squares += reference * reference;
    s->product += error * reference;
    s->error_largest = fmax(s->error_largest, fabs(error));
    return error;
}

// Adds an LSE or a largest logit with this |error| to the sums. Returns the limit of its error.
static double logarithm_add(struct tally *t, double error, double reference, int64_t keys)
{
    double admitted = rules_logarithm(&t->rules, reference);
    double all = admitted + rules_logarithm_keys(keys);
    t->sums.long_sums += error > admitted && error <= all;
    t->sums.admitted_squares += all * all;
    return all;
}

// ---- rows with only finite numbers --------------------------------------------------------------

// Vector sums over a row with only finite numbers. They are discarded if a number is not finite.
#define LANES  8
#define INLINE static inline __attribute__((always_inline))

// A tolerance that no error exceeds.
#define TE_NONE 1e300

typedef double wide __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t whole __attribute__((vector_size(LANES * sizeof(int64_t))));
typedef float narrow __attribute__((vector_size(LANES * sizeof(float))));

#pragma GCC diagnostic ignored "-Wpsabi" // all of these are inlined, in every clone

INLINE wide load_narrow(const float *x)
{
    narrow values;
    memcpy(&values, x, sizeof(values));
    return __builtin_convertvector(values, wide);
}

INLINE wide load_wide(const double *x)
{
    wide values;
    memcpy(&values, x, sizeof(values));
    return values;
}

INLINE wide size_of(wide x)
{
    return (wide)((whole)x & INT64_MAX);
}

INLINE wide larger_of(wide a, wide b)
{
    whole above = a > b;
    return (wide)(((whole)a & above) | ((whole)b & ~above));
}

INLINE double sum_of(wide x)
{
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += x[j];
    return sum;
}

INLINE double largest_of(wide x)
{
    double most = 0;
    for (int j = 0; j < LANES; j++)
        most = x[j] > most ? x[j] : most;
    return most;
}

// The twin's sums of a row.
struct row_twin {
    double squares, product;
};

// The first pass over a row. False: the row needs row_add_odd(), and is not in the sums.
JUDGE_CLONES static bool row_add(struct tally *t, const float *got, const struct tally_expected *e,
                                 int count, struct row_twin *row)
{
    struct rules_sums *s = &t->sums;
    float *errors = t->errors + t->rows * t->dim;
    const wide zero = {0};
    wide squares = zero, references = zero, products = zero, largest = zero;
    wide twins = zero, twin_products = zero, twin_largest = zero;
    whole te_matches = {0};
    double te = t->rules.te == 0 ? TE_NONE : t->rules.te;
    if (t->rules.absolute || e->sparse || e->zero || count % LANES != 0)
        return false;
    for (int i = 0; i < count; i += LANES) {
        wide value = load_narrow(got + i), reference = load_wide(e->reference + i);
        wide error = value - reference, twin = load_narrow(e->twin + i) - reference;
        narrow kept = __builtin_convertvector(error, narrow);
        memcpy(errors + i, &kept, sizeof(kept));
        te_matches -= size_of(error) <= te + te * size_of(value);
        squares += error * error;
        references += reference * reference;
        products += error * reference;
        largest = larger_of(size_of(error), largest);
        twins += twin * twin;
        twin_products += twin * reference;
        twin_largest = larger_of(size_of(twin), twin_largest);
    }
    double all_squares = sum_of(squares), all_references = sum_of(references);
    double all_twins = sum_of(twins);
    if (!isfinite(all_squares + all_references + all_twins))
        return false;
    *row = (struct row_twin){all_twins, sum_of(twin_products)};
    s->elements += count;
    s->te_mismatches += count;
    for (int j = 0; j < LANES; j++)
        s->te_mismatches -= te_matches[j];
    s->error_squares += all_squares;
    s->reference_squares += all_references;
    s->product += sum_of(products);
    s->error_largest = fmax(s->error_largest, largest_of(largest));
    s->twin_largest = fmax(s->twin_largest, largest_of(twin_largest));
    return true;
}

// ---- the first pass -----------------------------------------------------------------------------

// The first pass over a row, element by element. For LSE and largest logits it returns the limit of
// the error.
static double row_add_odd(struct tally *t, const float *got, const struct tally_expected *e,
                          int count, struct row_twin *row)
{
    struct rules_sums *s = &t->sums;
    float *errors = t->errors + t->rows * t->dim;
    double admitted = 1;
    for (int i = 0; i < count; i++) {
        double reference = e->reference[i];
        s->elements++;
        if (!isfinite(got[i]) || !isfinite(reference)) {
            errors[i] = element_odd(t, got[i], reference);
            continue;
        }
        errors[i] = (float)element_add(t, got[i], reference);
        s->zeros += e->zero && got[i] != 0;
        if (t->rules.absolute) {
            admitted = logarithm_add(t, fabs(errors[i]), reference, e->keys);
            continue;
        }
        s->empty += e->sparse && reference == 0 && e->twin[i] == 0;
        double twin = rules_twin(&t->rules, e->twin[i], reference);
        row->squares += twin * twin;
        row->product += twin * reference;
        s->twin_largest = fmax(s->twin_largest, fabs(twin));
    }
    return admitted;
}

void tally_row(struct tally *t, const float *got, const struct tally_expected *e, int count)
{
    struct rules_sums *s = &t->sums;
    struct row_twin row = {0, 0};
    float *unit = &t->twins[t->rows];
    double admitted = 1;
    if (!row_add(t, got, e, count, &row))
        admitted = row_add_odd(t, got, e, count, &row);
    s->twin_squares += row.squares;
    s->twin_product += row.product;
    s->twin_product_squares += row.product * row.product;
    s->twin_fourths += row.squares * row.squares;
    s->terms_squares += e->terms * e->terms * count;
    double twin = sqrt(row.squares / (count > 0 ? count : 1));
    *unit = (float)(t->rules.absolute ? admitted : rules_row_unit(&t->rules, twin, e->row_terms));
    if (e->zero) {
        *unit = UNIT_ZERO;
        s->empty += count;
    }
    s->rows++;
    t->rows++;
}

void tally_turn(struct tally *t)
{
    t->units = rules_units(&t->rules, &t->sums);
}

static void element_bad(struct tally *t, struct element where, int dim, double got, double error)
{
    struct figures *f = &t->figures;
    if (t->worst.mismatches++ > 0)
        return;
    f->first_bad = where;
    f->first_bad.dim += dim;
    f->first_bad_got = got;
    f->first_bad_expected = isnan(error) ? t->refused_expected : got - error;
}

static void row_worst(struct tally *t, double value, struct element where)
{
    if (t->figures.worst_row.position >= 0 && !(value > t->worst.row))
        return;
    t->worst.row = value;
    t->figures.worst_row = where;
}

// An error as a fraction of its limit. In a row that must be zero: infinite if the element is not.
static double element_part(struct tally *t, double error, double unit, double got)
{
    if (unit == UNIT_ZERO)
        return got != 0 ? INFINITY : 0;
    double part = t->rules.absolute ? fabs(error) / unit
                                    : rules_element(&t->rules, &t->units, error, got, unit);
    t->worst.element = fmax(t->worst.element, part);
    return part;
}

// The sum of squares of the errors of a row if every element is within its limit; negative: the row
// must be checked element by element.
JUDGE_CLONES static double row_again(struct tally *t, const float *got, const float *errors,
                                     double unit, int count)
{
    wide squares = {0}, parts = {0};
    wide least = (wide){0} + rules_element_least(&t->rules, &t->units, unit);
    for (int i = 0; i < count; i += LANES) {
        wide error = load_narrow(errors + i);
        wide limit = larger_of(t->rules.element_slope * size_of(load_narrow(got + i)), least);
        squares += error * error;
        parts = larger_of(size_of(error) / limit, parts);
    }
    double sum = sum_of(squares), part = largest_of(parts);
    if (!isfinite(sum) || !(part < 1))
        return -1;
    t->worst.element = fmax(t->worst.element, part);
    return sum;
}

static double row_again_odd(struct tally *t, const float *got, const float *errors, double unit,
                            struct element where, int count, double *part)
{
    double squares = 0;
    for (int i = 0; i < count; i++) {
        double error = errors[i];
        if (isnan(error)) {
            element_bad(t, where, i, got[i], error);
            continue;
        }
        *part = element_part(t, error, unit, got[i]);
        if (!(*part <= 1))
            element_bad(t, where, i, got[i], error);
        squares += error * error;
    }
    return squares;
}

void tally_row_again(struct tally *t, const float *got, struct element where, int count)
{
    const float *errors = t->errors + t->next * t->dim;
    double squares = -1, unit = t->twins[t->next++], part = 0;
    if (!t->rules.absolute && unit != UNIT_ZERO && count % LANES == 0)
        squares = row_again(t, got, errors, unit, count);
    if (squares < 0)
        squares = row_again_odd(t, got, errors, unit, where, count, &part);
    double rms = sqrt(squares / (count > 0 ? count : 1));
    row_worst(t, t->rules.absolute ? part : rules_row(&t->units, rms, fmax(unit, 0)), where);
}

void tally_finish(struct tally *t)
{
    rules_finish(&t->rules, &t->sums, &t->worst, &t->figures);
}
