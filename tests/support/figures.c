// SPDX-License-Identifier: Apache-2.0
#include "tests/support/figures.h"

#include <math.h>

const struct figures *figures_find(const struct rank_report *r, const struct figures *like)
{
    for (int i = 0; i < r->figures_count; i++)
        if (r->figures[i].tensor == like->tensor && r->figures[i].chunk == like->chunk)
            return &r->figures[i];
    return NULL;
}

bool doubles_same(double a, double b)
{
    return (a == b && signbit(a) == signbit(b)) || (isnan(a) && isnan(b));
}

static bool same_element(const struct element *a, const struct element *b)
{
    return a->sequence == b->sequence && a->head == b->head && a->dim == b->dim &&
           a->position == b->position;
}

bool figures_same(const struct figures *a, const struct figures *b)
{
    return a->broken == b->broken && a->elements == b->elements && a->mismatches == b->mismatches &&
           a->nonfinite == b->nonfinite && doubles_same(a->rmse_rel, b->rmse_rel) &&
           doubles_same(a->rmse_limit, b->rmse_limit) && doubles_same(a->max_abs, b->max_abs) &&
           doubles_same(a->worst_element, b->worst_element) &&
           doubles_same(a->worst_row_rel, b->worst_row_rel) &&
           doubles_same(a->worst_row_limit, b->worst_row_limit) &&
           same_element(&a->worst_row, &b->worst_row) &&
           same_element(&a->first_bad, &b->first_bad) &&
           doubles_same(a->first_bad_got, b->first_bad_got) &&
           doubles_same(a->first_bad_expected, b->first_bad_expected) &&
           doubles_same(a->twin_rel, b->twin_rel) && doubles_same(a->slope, b->slope) &&
           doubles_same(a->slope_limit, b->slope_limit) && a->judged == b->judged &&
           a->te_mismatches == b->te_mismatches && a->remark == b->remark;
}
