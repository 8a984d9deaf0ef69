// SPDX-License-Identifier: Apache-2.0
#include "judge/tally.h"

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

// What stands for the unit of a row that must be zero.
#define UNIT_ZERO (-1)

// An element that is in no sum, and what is kept of it: NaN, and of the first what it should be.
static float element_odd(struct tally *t, double got, double reference)
{
    if (got == reference)
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

// What a logarithm may err by.
static double logarithm_add(struct tally *t, double error, double reference, int64_t keys)
{
    double admitted = rules_logarithm(&t->rules, reference);
    double all = admitted + rules_logarithm_keys(keys);
    t->sums.long_sums += error > admitted && error <= all;
    t->sums.admitted_squares += all * all;
    return all;
}

void tally_row(struct tally *t, const float *got, const struct tally_expected *e, int count)
{
    struct rules_sums *s = &t->sums;
    float *errors = t->errors + t->rows * t->dim, *unit = &t->twins[t->rows];
    double twin_squares = 0, twin_product = 0, admitted = 1;
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
        double twin = e->twin[i] - reference;
        twin_squares += twin * twin;
        twin_product += twin * reference;
        s->twin_largest = fmax(s->twin_largest, fabs(twin));
    }
    s->twin_squares += twin_squares;
    s->twin_product_squares += twin_product * twin_product;
    s->twin_fourths += twin_squares * twin_squares;
    s->terms_squares += e->terms * e->terms * count;
    double twin = sqrt(twin_squares / (count > 0 ? count : 1));
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

// An element as a part of what it may be; infinite where nothing is admitted.
static double element_part(struct tally *t, double error, double unit, double got)
{
    if (unit == UNIT_ZERO)
        return got != 0 ? INFINITY : 0;
    double part =
        t->rules.absolute ? fabs(error) / unit : rules_element(&t->rules, &t->units, error, got);
    t->worst.element = fmax(t->worst.element, part);
    return part;
}

void tally_row_again(struct tally *t, const float *got, struct element where, int count)
{
    const float *errors = t->errors + t->next * t->dim;
    double squares = 0, unit = t->twins[t->next++], part = 0;
    for (int i = 0; i < count; i++) {
        double error = errors[i];
        if (isnan(error)) {
            element_bad(t, where, i, got[i], error);
            continue;
        }
        part = element_part(t, error, unit, got[i]);
        if (!(part <= 1))
            element_bad(t, where, i, got[i], error);
        squares += error * error;
    }
    double rms = sqrt(squares / (count > 0 ? count : 1));
    row_worst(t, t->rules.absolute ? part : rules_row(&t->units, rms, fmax(unit, 0)), where);
}

void tally_finish(struct tally *t)
{
    rules_finish(&t->rules, &t->sums, &t->worst, &t->figures);
}
