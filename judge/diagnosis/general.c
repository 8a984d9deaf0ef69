// SPDX-License-Identifier: Apache-2.0
// Hypotheses that only describe an error, for errors that no known mistake explains: a factor for
// each row, factors for parts of each row, or only some wrong rows and dims.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"

// Minimum number of elements of a row for each factor that is fitted to it.
#define ELEMENTS_LEAST 12
#define PARTS_MAX      8
// Minimum energy of a part whose factor is fitted, as a share of its row's energy.
#define PART_LEAST     1e-3
// Minimum distance of the factors of half the rows.
#define FACTORS_APART  0.02
// Minimum number of right rows for a sentence that only some rows are wrong.
#define ROWS_RIGHT     4

// ---- a factor for each row ----------------------------------------------------------------------

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Offers the factors for out twice: with the LSE of the wrong denominator, then with the right LSE.
static void try_row_factors(struct trial *t)
{
    double factors[DIAGNOSIS_ROWS_MAX];
    bool out = t->in->tensor == TENSOR_OUT;
    if ((!out && t->in->tensor != TENSOR_DQ) || t->dim < ELEMENTS_LEAST)
        return;
    memcpy(t->lse_tried, t->lse_right, sizeof(t->lse_right));
    for (int row = 0; row < t->rows; row++) {
        const double *right = t->right + row * t->dim;
        double energy = dot(right, right, t->dim);
        double factor = energy > 0 ? dot(right, t->got + row * t->dim, t->dim) / energy : 1;
        for (int k = 0; k < t->dim; k++)
            t->tried[row * t->dim + k] = factor * right[k];
        if (factor > 0)
            t->lse_tried[row] -= log(factor);
        factors[row] = factor;
    }
    qsort(factors, (size_t)t->rows, sizeof(*factors), ascending);
    double low = factors[t->rows / 4], high = factors[t->rows - 1 - t->rows / 4];
    if (high - low < fmax(FACTORS_APART, fabs(2 - high - low) / 4))
        return; // the same factor in all rows
    const char *about =
        out ? "out, as from a wrong denominator" : "dq, as from a wrong LSE in the backward pass";
    for (int i = 0; i < (out ? 2 : 1); i++) {
        trial_offer(t, DIAGNOSIS_ROW_FACTORS, t->tried,
                    "each row has a factor of its own, half of them from %.5g to %.5g, in %s", low,
                    high, about);
        trial_keep_lse(t);
    }
}

// ---- factors for parts of each row --------------------------------------------------------------

// Fills the parts of P V of a panel, [part][rows][dim]: keys before and after `split`, or with
// split 0 the keys of each rank. Returns the number of parts.
static int parts_fill(struct trial *t, struct panel *p, int64_t split, double *parts)
{
    int64_t n = (int64_t)p->rows * t->dim;
    int count = split > 0 ? 2 : t->c->world_size;
    memset(parts, 0, (size_t)(count * n) * sizeof(double));
    if (split > 0) {
        panel_add_v(p, p->p, 0, split < p->keys ? split : p->keys, parts);
        panel_add_v(p, p->p, split, p->keys, parts + n);
        return count;
    }
    for (int chunk = 0; chunk < p->k_chunks.count; chunk++)
        panel_add_v(p, p->p, p->k_chunks.begin[chunk], p->k_chunks.begin[chunk + 1],
                    parts + p->k_chunks.ranks[chunk] * n);
    return count;
}

// Fits a factor for each part of one row by least squares, and fills the row of t->tried. Parts
// with little energy keep the factor 1. Raises *most to the largest |factor - 1|.
static void row_fit(const struct trial *t, const double *parts, int count, int64_t stride, int row,
                    double *most)
{
    double matrix[PARTS_MAX * PARTS_MAX], factors[PARTS_MAX];
    const double *used[PARTS_MAX], *got = t->got + (int64_t)row * t->dim;
    double *tried = t->tried + (int64_t)row * t->dim;
    int parts_used = 0;
    double whole = dot(t->right + row * t->dim, t->right + row * t->dim, t->dim);
    memcpy(tried, t->right + row * t->dim, (size_t)t->dim * sizeof(double));
    for (int i = 0; i < count; i++)
        if (dot(parts + i * stride, parts + i * stride, t->dim) > PART_LEAST * whole)
            used[parts_used++] = parts + i * stride;
    for (int i = 0; i < parts_used; i++) {
        for (int k = 0; k < parts_used; k++)
            matrix[i * parts_used + k] = dot(used[i], used[k], t->dim);
        factors[i] = dot(used[i], got, t->dim);
    }
    if (parts_used == 0 || !trial_solve(matrix, factors, parts_used))
        return;
    for (int i = 0; i < parts_used; i++)
        *most = fmax(*most, fabs(factors[i] - 1));
    for (int i = 0; i < parts_used; i++)
        for (int k = 0; k < t->dim; k++)
            tried[k] += (factors[i] - 1) * used[i][k];
}

static void try_split(struct trial *t, int64_t split, double *parts)
{
    double most = 0;
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        struct variant right = variant_none(p);
        variant_gradient(p, &right, p->lse, p->delta, false);
        int count = parts_fill(t, p, split, parts);
        for (int row = 0; row < p->rows; row++)
            row_fit(t, parts + (int64_t)row * t->dim, count, (int64_t)p->rows * t->dim,
                    t->panel_first[i] + row, &most);
    }
    for (int row = 0; row < t->rows; row++) // accepts the delivered LSE
        t->lse_tried[row] = t->lse_got[row];
    const char *how = most < 0.02 ? "imprecise" : "wrong";
    if (split > 0)
        trial_offer(t, DIAGNOSIS_PART_FACTORS, t->tried,
                    "in each row the parts of keys 0 to %lld and of later keys have %s factors, "
                    "off by up to %.2g: look at how a sum is scaled when its maximum changes",
                    (long long)split - 1, how, most);
    else
        trial_offer(t, DIAGNOSIS_PART_FACTORS, t->tried,
                    "the partial results of the ranks have %s weights, off by up to %.2g, "
                    "different in each row: look at the LSE by which they are merged",
                    how, most);
}

// ---- where the error is -------------------------------------------------------------------------

struct extent {
    int count, least, most;
};

static void extend(struct extent *x, int at)
{
    x->least = x->count == 0 || at < x->least ? at : x->least;
    x->most = x->count == 0 || at > x->most ? at : x->most;
    x->count++;
}

// True if the error of elements first, first + stride, ... below `end` is more than rounding.
static bool is_wrong(const struct trial *t, int first, int stride, int end)
{
    double error = 0, noise = 0;
    for (int at = first; at < end; at += stride) {
        error += pow(t->got[at] - t->right[at], 2);
        noise += t->row_noise[at / t->dim] / t->dim;
    }
    return error > TRIAL_WRONG * noise;
}

void try_places(struct trial *t, bool any_lse)
{
    struct extent rows = {0}, dims = {0}, heads = {0}, positions = {0};
    int n = t->rows * t->dim;
    for (int row = 0; row < t->rows; row++) {
        const struct diagnosis_row *x = &t->in->rows[t->row_of[row]];
        if (!is_wrong(t, row * t->dim, 1, (row + 1) * t->dim))
            continue;
        extend(&rows, row);
        extend(&heads, x->head);
        extend(&positions, (int)x->position);
    }
    for (int k = 0; k < t->dim; k++)
        if (is_wrong(t, k, t->dim, n))
            extend(&dims, k);
    bool few_rows = 2 * rows.count <= t->rows && t->rows - rows.count >= ROWS_RIGHT;
    bool few_dims = dims.most - dims.least + 1 <= t->dim / 2;
    if (rows.count == 0 || dims.count == 0 || (!few_rows && !few_dims))
        return;
    for (int row = 0; row < t->rows; row++) {
        int at = row * t->dim;
        const double *values = is_wrong(t, at, 1, at + t->dim) ? t->got : t->right;
        memcpy(t->tried + at, values + at, (size_t)t->dim * sizeof(double));
    }
    trial_keep_lse(t);
    for (int row = 0; row < t->rows && any_lse; row++)
        t->lse_tried[row] = t->lse_got[row];
    trial_offer(
        t, DIAGNOSIS_PLACES, t->tried,
        "%s is wrong in %d of %d examined rows, heads %d to %d, positions %d to %d, dims %d "
        "to %d%s",
        report_tensor_name(t->in->tensor), rows.count, t->rows, heads.least, heads.most,
        positions.least, positions.most, dims.least, dims.most,
        few_rows ? "; the other rows are right" : " only");
}

void try_general(struct trial *t)
{
    int world = t->c->world_size;
    int64_t keys = 0;
    try_row_factors(t);
    if (t->dim > 1)
        try_places(t, false);
    if (t->in->tensor != TENSOR_OUT || trial_solved(t))
        return;
    double *parts = malloc((size_t)(PARTS_MAX * t->rows * t->dim) * sizeof(double));
    for (int i = 0; i < t->panel_count; i++)
        keys = t->panels[i].keys > keys ? t->panels[i].keys : keys;
    if (parts && world > 1 && world <= PARTS_MAX && t->dim >= ELEMENTS_LEAST * world)
        try_split(t, 0, parts);
    for (int tile = 16; parts && world == 1 && tile <= 256 && t->dim >= 2 * ELEMENTS_LEAST;
         tile *= 2)
        for (int64_t split = tile; split < keys && split <= 4 * tile && !trial_over(t);
             split += tile)
            try_split(t, split, parts);
    free(parts);
}
