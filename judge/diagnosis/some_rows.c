// SPDX-License-Identifier: Apache-2.0
// Mistakes that are in some rows only.
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "judge/diagnosis/trial.h"

// A mistake shows in a row if it changes the row by at least this multiple of the energy of
// rounding.
#define SHOWS 4

// Energy of the difference of two rows.
static double apart(const struct trial *t, const double *a, const double *b)
{
    double sum = 0;
    for (int k = 0; k < t->dim; k++)
        sum += a[k] == b[k] ? 0 : (a[k] - b[k]) * (a[k] - b[k]);
    return isfinite(sum) ? sum : DBL_MAX;
}

bool trial_row_is_wrong(const struct trial *t, int row)
{
    const double *got = t->got + (int64_t)row * t->dim, *right = t->right + (int64_t)row * t->dim;
    return apart(t, got, right) > TRIAL_WRONG * t->row_noise[row] || trial_lse_is_wrong(t, row);
}

struct some_rows trial_some_rows(struct trial *t)
{
    struct some_rows x = {.first = INT64_MAX, .last = -1};
    for (int row = 0; row < t->rows; row++) {
        const double *got = t->got + row * t->dim, *right = t->right + row * t->dim;
        double *tried = t->tried + row * t->dim;
        bool shows = apart(t, tried, right) >= SHOWS * t->row_noise[row];
        x.shown += shows;
        if (!shows || apart(t, got, tried) >= apart(t, got, right)) {
            memcpy(tried, right, (size_t)t->dim * sizeof(double));
            t->lse_tried[row] = t->lse_right[row];
            continue;
        }
        int64_t position = t->in->rows[t->row_of[row]].position;
        x.wrong++;
        x.first = position < x.first ? position : x.first;
        x.last = position > x.last ? position : x.last;
    }
    return x;
}

void some_rows_name(const struct some_rows *x, char *text, size_t size)
{
    *text = '\0';
    if (x->wrong < x->shown)
        snprintf(text, size,
                 " in %d of %d examined rows that it changes, at positions %lld to %lld", x->wrong,
                 x->shown, (long long)x->first, (long long)x->last);
}
