// SPDX-License-Identifier: Apache-2.0
#include "judge/diagnosis/trial.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/statistics.h"

// ---- panels -------------------------------------------------------------------------------------

static bool is_key_side(enum report_tensor tensor)
{
    return tensor == TENSOR_DK || tensor == TENSOR_DV;
}

static int tensor_dim(const struct cp_case *c, enum report_tensor tensor)
{
    if (tensor == TENSOR_LSE)
        return 1;
    return tensor == TENSOR_OUT || tensor == TENSOR_DV ? c->head_dim_v : c->head_dim_qk;
}

static bool same_panel(const struct diagnosis_row *a, const struct diagnosis_row *b)
{
    return a->sequence == b->sequence && a->head == b->head;
}

// Groups rows of the same sequence and head in panels of at most rows_max rows. Rows that do not
// fit in TRIAL_PANELS_MAX panels are left out.
static void rows_group(struct trial *t, int rows_max)
{
    const struct diagnosis_row *rows = t->in->rows;
    bool taken[DIAGNOSIS_ROWS_MAX] = {false};
    for (int i = 0; i < t->in->count && t->panel_count < TRIAL_PANELS_MAX; i++) {
        if (taken[i])
            continue;
        int first = t->rows;
        for (int k = i; k < t->in->count && t->rows - first < rows_max; k++)
            if (!taken[k] && same_panel(&rows[i], &rows[k])) {
                taken[k] = true;
                t->positions[t->rows] = rows[k].position;
                t->row_of[t->rows++] = k;
            }
        t->panel_first[t->panel_count++] = first;
        t->panel_first[t->panel_count] = t->rows;
    }
}

static int64_t columns_of(const struct trial *t, int32_t sequence)
{
    const struct cp_case *c = t->c;
    if (!is_key_side(t->in->tensor))
        return case_length(c, SIDE_KV, sequence);
    return case_length(c, SIDE_Q, sequence) * (c->heads / c->kv_heads);
}

// Returns the maximum number of rows per panel, and sets that of panels, so that all panels
// together are within the bounds of judge/diagnosis.h. 0: not even one row is.
static int rows_affordable(const struct trial *t, int *panels)
{
    const struct cp_case *c = t->c;
    int64_t columns = 1;
    for (int i = 0; i < t->in->count; i++) {
        int64_t count = columns_of(t, t->in->rows[i].sequence);
        columns = count > columns ? count : columns;
    }
    int64_t room = DIAGNOSIS_ELEMENTS_MAX / (columns * (c->head_dim_qk + c->head_dim_v));
    *panels = room < TRIAL_PANELS_MAX ? (int)room : TRIAL_PANELS_MAX;
    int64_t rows = *panels > 0 ? DIAGNOSIS_PAIRS_MAX / columns / *panels : 0;
    if (rows == 0 && *panels > 1) {
        *panels = 1;
        rows = DIAGNOSIS_PAIRS_MAX / columns;
    }
    return rows < DIAGNOSIS_ROWS_MAX ? (int)rows : DIAGNOSIS_ROWS_MAX;
}

static bool panels_init(struct trial *t)
{
    int panels, rows_max = rows_affordable(t, &panels), count;
    if (rows_max == 0)
        return false;
    rows_group(t, rows_max);
    count = t->panel_count < panels ? t->panel_count : panels;
    t->rows = t->panel_first[count];
    t->panel_count = 0;
    for (int i = 0; i < count; i++) {
        const struct diagnosis_row *row = &t->in->rows[t->row_of[t->panel_first[i]]];
        int group = t->c->heads / t->c->kv_heads;
        struct panel_setup setup = {.c = t->c,
                                    .side = is_key_side(t->in->tensor) ? SIDE_KV : SIDE_Q,
                                    .sequence = row->sequence,
                                    .head = row->head,
                                    .query_head = row->head,
                                    .key_head = row->head / group,
                                    .count = t->panel_first[i + 1] - t->panel_first[i],
                                    .positions = t->positions + t->panel_first[i]};
        if (!panel_init(&t->panels[i], &setup))
            return false;
        t->panel_count++;
    }
    return t->panel_count > 0;
}

// ---- what rows should be ------------------------------------------------------------------------

static struct variant nothing_varianted(const struct panel *p, const void *with)
{
    (void)with;
    return variant_none(p);
}

// Fills the right LSE and delta of a panel's queries.
static bool panel_statistics(struct trial *t, struct panel *p)
{
    if (p->setup.side == SIDE_KV)
        return statistics_of_keys(t->in, p);
    return variant_statistics(p);
}

static void evaluate_keys(struct trial *t, struct panel *p, const struct variant *variant,
                          double *values)
{
    int64_t count = (int64_t)p->rows * t->dim;
    variant_key_gradient(p, variant, p->lse, p->delta);
    memset(values, 0, (size_t)count * sizeof(double));
    if (t->in->tensor == TENSOR_DV) {
        panel_add_v(p, p->p, 0, p->columns, values);
        return;
    }
    panel_add_qk(p, p->ds, 0, p->columns, values);
    for (int64_t i = 0; i < count; i++)
        values[i] *= case_scale(t->c) * variant->scale;
}

void trial_evaluate_panel(struct trial *t, struct panel *p, const struct variant *variant,
                          int first, double *values, double *lse)
{
    values += (int64_t)first * t->dim;
    switch (t->in->tensor) {
    case TENSOR_OUT:
        variant_forward(p, variant, values, lse + first);
        return;
    case TENSOR_LSE:
        variant_lse(p, variant, lse + first);
        memcpy(values, lse + first, (size_t)p->rows * sizeof(double));
        return;
    case TENSOR_DQ:
        variant_gradient(p, variant, p->lse, p->delta, true);
        variant_dq(p, variant, 0, p->columns, values);
        return;
    default:
        evaluate_keys(t, p, variant, values);
    }
}

// Copies LSE and delta, which a panel has by row (query rows) or by column (key rows).
static void statistics_copy(struct panel *to, const struct panel *from)
{
    int64_t count = to->setup.side == SIDE_Q ? to->rows : to->columns;
    memcpy(to->lse, from->lse, (size_t)count * sizeof(double));
    memcpy(to->delta, from->delta, (size_t)count * sizeof(double));
}

bool trial_evaluate_other(struct trial *t, int i, const struct panel_setup *setup, bool consistent,
                          double *values)
{
    struct panel other;
    struct panel_setup borrowing = *setup;
    borrowing.like = &t->panels[i];
    bool known = panel_init(&other, &borrowing);
    if (known && setup->side == SIDE_Q && consistent)
        known = variant_statistics(&other);
    else if (known && setup->side == SIDE_KV &&
             (setup->modulo || setup->head != t->panels[i].setup.head ||
              setup->sequence != t->panels[i].setup.sequence))
        known = statistics_of_keys(t->in, &other);
    else if (known)
        statistics_copy(&other, &t->panels[i]);
    if (known) {
        struct variant right = variant_none(&other);
        trial_evaluate_panel(t, &other, &right, t->panel_first[i], values, t->lse_tried);
    }
    panel_fini(&other);
    return known;
}

void trial_evaluate(struct trial *t, trial_variant *variant, const void *with)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct variant of_panel = variant(&t->panels[i], with);
        trial_evaluate_panel(t, &t->panels[i], &of_panel, t->panel_first[i], t->tried,
                             t->lse_tried);
    }
}

// Maximum difference of two LSE, used if one is that of a row that sees nothing and is infinite.
#define LSE_FAR 1e3

// ---- energies -----------------------------------------------------------------------------------

double trial_energy(const struct trial *t, const double *values)
{
    double sum = 0;
    for (int64_t i = 0; i < (int64_t)t->rows * t->dim; i++) {
        double difference = t->got[i] == values[i] ? 0 : t->got[i] - values[i];
        sum += t->in->tensor == TENSOR_LSE ? fmin(difference * difference, LSE_FAR * LSE_FAR)
                                           : difference * difference;
    }
    return isfinite(sum) ? sum : DBL_MAX;
}

static double energy_of(const struct trial *t, const double *values)
{
    double sum = 0;
    for (int64_t i = 0; i < (int64_t)t->rows * t->dim; i++)
        sum += isfinite(values[i]) ? values[i] * values[i] : LSE_FAR * LSE_FAR;
    return sum;
}

// RMS error / RMS of an honest result, if the caller gives none.
static double usual_noise(enum case_dtype dtype)
{
    return dtype == DTYPE_BF16 ? 3e-3 : dtype == DTYPE_FP16 ? 4e-4 : 1e-6;
}

// Unit of the rounding error of an LSE. That of a row that sees nothing is infinite and exact.
static double lse_unit(double lse)
{
    return 0x1p-22 * (64 + (isfinite(lse) ? 8 * fabs(lse) : 0));
}

// Divides the noise among the rows.
static void row_noise_init(struct trial *t)
{
    double all = energy_of(t, t->right), average = t->noise / t->rows;
    for (int row = 0; row < t->rows; row++) {
        double own = 0;
        for (int at = row * t->dim; at < (row + 1) * t->dim; at++)
            own += isfinite(t->right[at]) ? t->right[at] * t->right[at] : 0;
        t->row_noise[row] = all > 0 ? fmax(average, t->noise * own / all) : average;
    }
}

static void energies_init(struct trial *t)
{
    double rel = t->in->noise > 0 ? t->in->noise : usual_noise(t->c->dtype), squares = 0;
    int64_t count = (int64_t)t->rows * t->dim;
    t->finite = true;
    for (int64_t i = 0; i < count; i++) {
        bool lse = t->in->tensor == TENSOR_LSE;
        double unit = lse ? lse_unit(t->right[i]) : rel * t->right[i];
        squares += unit * unit;
        t->finite = t->finite && (isfinite(t->got[i]) || (lse && t->got[i] == -INFINITY));
    }
    t->noise = squares;
    row_noise_init(t);
    t->error = trial_energy(t, t->right);
    t->got_energy = energy_of(t, t->got);
}

static void got_load(struct trial *t)
{
    for (int i = 0; i < t->rows; i++) {
        const struct diagnosis_row *row = &t->in->rows[t->row_of[i]];
        for (int k = 0; k < t->dim; k++)
            t->got[i * t->dim + k] = row->got[k];
        t->lse_got[i] = t->in->tensor == TENSOR_LSE ? row->got[0] : row->lse;
    }
}

static bool values_init(struct trial *t)
{
    int64_t count = (int64_t)t->rows * t->dim;
    t->memory = calloc((size_t)(4 * count + t->rows), sizeof(double));
    if (!t->memory)
        return false;
    t->got = t->memory;
    t->right = t->got + count;
    t->tried = t->right + count;
    t->moved = t->tried + count;
    t->row_noise = t->moved + count;
    return true;
}

static void start(struct trial *t, const struct diagnosis_input *in)
{
    *t = (struct trial){.in = in, .c = in->c, .dim = tensor_dim(in->c, in->tensor)};
    for (int kind = 0; kind < DIAGNOSIS_KINDS; kind++)
        t->best[kind].left = 1;
}

bool trial_init_values(struct trial *t, const struct diagnosis_input *in, int rows, int dim)
{
    start(t, in);
    t->rows = rows;
    t->dim = dim;
    return values_init(t);
}

void trial_weigh(struct trial *t, double noise)
{
    int64_t count = (int64_t)t->rows * t->dim;
    t->noise = noise * noise * (double)count;
    row_noise_init(t);
    t->error = trial_energy(t, t->right);
    t->got_energy = energy_of(t, t->got);
    t->finite = true;
    for (int64_t i = 0; i < count; i++)
        t->finite = t->finite && isfinite(t->got[i]);
}

bool trial_init(struct trial *t, const struct diagnosis_input *in)
{
    start(t, in);
    if (!panels_init(t) || !values_init(t))
        return false;
    int64_t count = (int64_t)t->rows * t->dim;
    got_load(t);
    for (int i = 0; i < t->panel_count; i++)
        if (!panel_statistics(t, &t->panels[i]))
            return false;
    trial_evaluate(t, nothing_varianted, NULL);
    memcpy(t->right, t->tried, (size_t)count * sizeof(double));
    memcpy(t->lse_right, t->lse_tried, sizeof(t->lse_right));
    energies_init(t);
    return true;
}

void trial_fini(struct trial *t)
{
    for (int i = 0; i < TRIAL_PANELS_MAX; i++)
        panel_fini(&t->panels[i]);
    free(t->memory);
}

// ---- rating -------------------------------------------------------------------------------------

void trial_keep_lse(struct trial *t)
{
    memcpy(t->lse_tried, t->lse_right, sizeof(t->lse_right));
}

// Square of the difference of two LSE in units of lse_unit().
static double lse_difference(double a, double b)
{
    if (a == b)
        return 0;
    double difference = isfinite(a) && isfinite(b) ? (a - b) / lse_unit(b) : 1e6;
    return difference * difference;
}

bool trial_lse_is_wrong(const struct trial *t, int row)
{
    double got = t->lse_got[row];
    return t->in->tensor == TENSOR_OUT && !isnan(got) &&
           lse_difference(got, t->lse_right[row]) > TRIAL_WRONG;
}

// Share of the error of LSE that the hypothesis does not explain, if rows of out come with LSE.
static double lse_left(const struct trial *t)
{
    double left = 0, wrong = 0, moved = 0, rows = 0;
    if (t->in->tensor != TENSOR_OUT)
        return 0;
    for (int i = 0; i < t->rows; i++) {
        if (isnan(t->lse_got[i]))
            continue;
        rows++;
        left += lse_difference(t->lse_got[i], t->lse_tried[i]);
        wrong += lse_difference(t->lse_got[i], t->lse_right[i]);
        moved += lse_difference(t->lse_tried[i], t->lse_right[i]);
    }
    double most = wrong > moved ? wrong : moved;
    return most > 4 * rows && left > rows ? (left - rows) / most : 0;
}

// Share of the error that a hypothesis leaves; `after` is the energy that remains. A hypothesis
// must explain the error beyond rounding. If the delivered values are much smaller than the right
// ones, it must also explain the values themselves.
static double share_left(const struct trial *t, double after)
{
    double excess = t->error - t->noise;
    double left = after - fmin(t->noise, 0.05 * t->got_energy);
    if (left <= 0)
        return 0;
    if (excess < t->noise)
        return after / t->error;
    return left / fmin(excess, t->got_energy);
}

static double row_error(const struct trial *t, const double *values, int row)
{
    double sum = 0;
    for (int at = row * t->dim; at < (row + 1) * t->dim; at++)
        sum += t->got[at] == values[at] ? 0 : pow(t->got[at] - values[at], 2);
    return isfinite(sum) ? sum : DBL_MAX;
}

// The share of a row's error that remains, averaged with equal weights over the wrong rows and over
// the right rows that the hypothesis makes wrong. Without this average one row with a huge error
// would decide.
static double rows_left(const struct trial *t, const double *values)
{
    double sum = 0, count = 0;
    for (int row = 0; row < t->rows; row++) {
        double wrong = row_error(t, t->right, row), noise = t->row_noise[row];
        double after = row_error(t, values, row);
        if (fmax(wrong, after) < TRIAL_WRONG * noise)
            continue;
        sum += wrong < TRIAL_WRONG * noise ? 1 : fmin(1, fmax(0, after - 4 * noise) / wrong);
        count++;
    }
    return count > 0 ? sum / count : 0;
}

// A hypothesis has to leave less than the one before it by this share, so that of two with the same
// values the first is kept.
#define BETTER 1e-8

void trial_offer(struct trial *t, enum diagnosis_kind kind, const double *values,
                 const char *format, ...)
{
    struct hypothesis *best = &t->best[kind];
    double after = trial_energy(t, values), left = share_left(t, after), of_lse = lse_left(t);
    left = fmax(left, fmax(of_lse, rows_left(t, values) / 2));
    if (left > best->left - BETTER)
        return;
    best->left = left;
    best->lse = of_lse;
    best->after = after;
    best->partly = t->partly;
    best->gone = t->error - after;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(best->text, sizeof(best->text), format, arguments);
    va_end(arguments);
}

// ---- least squares ------------------------------------------------------------------------------

bool trial_solve(double *matrix, double *right, int count)
{
    for (int i = 0; i < count; i++) { // Cholesky's L in the lower triangle
        for (int k = 0; k <= i; k++) {
            double sum = matrix[i * count + k], whole = sum;
            for (int m = 0; m < k; m++)
                sum -= matrix[i * count + m] * matrix[k * count + m];
            if (i == k && !(sum > 1e-9 * whole))
                return false;
            matrix[i * count + k] = i == k ? sqrt(sum) : sum / matrix[k * count + k];
        }
    }
    for (int i = 0; i < count; i++) {
        for (int m = 0; m < i; m++)
            right[i] -= matrix[i * count + m] * right[m];
        right[i] /= matrix[i * count + i];
    }
    for (int i = count - 1; i >= 0; i--) {
        for (int m = i + 1; m < count; m++)
            right[i] -= matrix[m * count + i] * right[m];
        right[i] /= matrix[i * count + i];
    }
    return true;
}

// The LSE of a row that sees nothing is infinite, and does not take part in a fit.
static double finite_or_0(double x)
{
    return isfinite(x) ? x : 0;
}

bool trial_fit(const struct trial *t, double *const *components, int count, const double *base,
               double *factors)
{
    int64_t n = (int64_t)t->rows * t->dim;
    double *matrix = calloc((size_t)count * (size_t)count, sizeof(double));
    if (!matrix || n < 4 * count) {
        free(matrix);
        return false;
    }
    for (int i = 0; i < count; i++) {
        for (int k = 0; k <= i; k++)
            for (int64_t at = 0; at < n; at++)
                matrix[i * count + k] += finite_or_0(components[i][at] * components[k][at]);
        factors[i] = 0;
        for (int64_t at = 0; at < n; at++)
            factors[i] += finite_or_0(components[i][at] * (t->got[at] - (base ? base[at] : 0)));
    }
    bool solved = trial_solve(matrix, factors, count);
    free(matrix);
    return solved;
}

// How far rounding alone may move a factor from 1.
static double factor_noise(const struct trial *t)
{
    enum report_tensor tensor = t->in->tensor;
    if (tensor == TENSOR_LSE || tensor == TENSOR_MAX_LOGIT) // fp32 in every dtype
        return 2e-5;
    return t->c->dtype == DTYPE_FP32 ? 3e-6 : 3e-4;
}

bool trial_is_one(const struct trial *t, double factor)
{
    return fabs(factor - 1) < factor_noise(t);
}

// How far the rounding of elements may move a fitted factor, relative to it: three deviations. A
// few large elements decide a sparse row.
static double fit_noise(const struct trial *t)
{
    double squares = 0, fourth = 0;
    for (int64_t i = 0; i < (int64_t)t->rows * t->dim; i++) {
        double square = pow(finite_or_0(t->right[i]), 2);
        squares += square;
        fourth += square * square;
    }
    return squares > 0 ? 3 * sqrt(t->noise * fourth / squares) / squares : 0;
}

void trial_factor_text(const struct trial *t, double factor, char text[TRIAL_FACTOR_MAX])
{
    double noise = fmax(factor_noise(t), fit_noise(t));
    double unsure = fmin(noise * fabs(factor), fabs(factor - 1) / 20);
    bool exact = false;
    for (int digits = 1; digits <= 6 && !exact; digits++) {
        snprintf(text, TRIAL_FACTOR_MAX, "%.*g", digits, factor);
        exact = fabs(strtod(text, NULL) - factor) <= unsure && !strchr(text, 'e');
    }
}

bool trial_over(struct trial *t)
{
    const struct diagnosis_input *in = t->in;
    t->interrupted = t->interrupted || (in->enough && in->enough(in->enough_context));
    return t->interrupted;
}
