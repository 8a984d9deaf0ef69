// SPDX-License-Identifier: Apache-2.0
// Finds gradients with a 16-bit accumulator, and LSE whose weights are rounded before their sum or
// approximate.
//
// Gradients: Each addition rounds to a step of the current sum. The error depends on the last bits
// of every part, so it cannot be recomputed. But the variance of each element's error can be
// computed without a fit, and it differs from the variance of an error that is proportional to the
// element or its row. The diagnosis has two conditions. With this variance, added to that of an
// honest result, the errors are much more likely than with honest errors of any size. And the
// roundings of the sums cause most of the error.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "judge/rules.h"

// Bounds of the share of the error's energy that the roundings of the sums cause.
#define SHARE_LEAST 0.6
#define SHARE_MOST  1.4
// Minimum energy of the error, as a multiple of that of an honest result's error.
#define EXCESS      1.8
// Minimum excess of the log-likelihood over the log-likelihood without roundings of the sums.
#define CERTAIN     30

struct narrow {
    struct trial *t;
    int64_t count;           // rows * dim; number of elements of the arrays
    double *last;            // variance of the last rounding
    double *honest[3];       // factors of the fitted shares of the variance: see HONEST
    double *sum, *part;      // the sum so far; the part that is added next
    double *variance, *kept; // of the roundings of the sums: in this order; in the best order
    double likelihood;       // log-likelihood of the best order
    char text[DIAGNOSIS_TEXT_MAX];
};

// Distance of neighbouring numbers of the dtype at x.
static double step_of(enum case_dtype dtype, double x)
{
    int exponent;
    frexp(x, &exponent);
    int least = dtype == DTYPE_FP16 ? -13 : -125;
    return ldexp(1, (exponent > least ? exponent : least) - (dtype == DTYPE_FP16 ? 11 : 8));
}

// ---- variances of rounded sums ------------------------------------------------------------------

// Adds columns [begin, end) of a panel to the part.
static void part_add(const struct narrow *x, struct panel *p, int64_t begin, int64_t end,
                     double *part)
{
    if (x->t->in->tensor == TENSOR_DV)
        panel_add_v(p, p->p, begin, end, part);
    else
        panel_add_qk(p, p->ds, begin, end, part);
}

// Adds the part to the sum, and the variance of rounding the sum to x->variance. A part smaller
// than a step may be lost, which limits the variance. The `last` rounding is not counted: an honest
// result has it, too.
static void part_round(struct narrow *x, int panel, bool last)
{
    const struct trial *t = x->t;
    int64_t begin = (int64_t)t->panel_first[panel] * t->dim;
    int64_t end = (int64_t)t->panel_first[panel + 1] * t->dim;
    double scale = t->in->tensor == TENSOR_DV ? 1 : case_scale(t->c);
    for (int64_t i = begin; i < end; i++) {
        double part = x->part[i] * scale;
        x->sum[i] += part;
        double step = step_of(t->c->dtype, x->sum[i]);
        if (!last)
            x->variance[i] += fmin(step * step / 12, part * part);
        x->part[i] = 0;
    }
}

// Adds the chunks of a rank, for all heads of the group, to the part.
static void part_of_rank(const struct narrow *x, struct panel *p, int rank, double *part)
{
    const struct chunks *chunks = p->setup.side == SIDE_Q ? &p->k_chunks : &p->q_chunks;
    int64_t other = p->setup.side == SIDE_Q ? 0 : p->queries;
    int groups = p->setup.side == SIDE_Q ? 1 : p->group;
    for (int head = 0; head < groups; head++)
        for (int chunk = 0; chunk < chunks->count; chunk++)
            if (chunks->ranks[chunk] == rank)
                part_add(x, p, head * other + chunks->begin[chunk],
                         head * other + chunks->begin[chunk + 1], part);
}

// Sums with one addition for each rank, the rank itself last.
static void sum_by_ranks(struct narrow *x, int panel)
{
    struct trial *t = x->t;
    int world = t->c->world_size;
    double *part = x->part + (int64_t)t->panel_first[panel] * t->dim;
    for (int step = 1; step <= world; step++) {
        part_of_rank(x, &t->panels[panel], (t->in->rank + step) % world, part);
        part_round(x, panel, step == world);
    }
}

// Sums with one addition for each `block` columns.
static void sum_by_blocks(struct narrow *x, int panel, int64_t block)
{
    struct trial *t = x->t;
    struct panel *p = &t->panels[panel];
    double *part = x->part + (int64_t)t->panel_first[panel] * t->dim;
    int64_t columns = p->setup.side == SIDE_Q ? p->keys : p->columns;
    for (int64_t begin = 0; begin < columns; begin += block) {
        int64_t end = begin + block < columns ? begin + block : columns;
        part_add(x, p, begin, end, part);
        part_round(x, panel, end == columns);
    }
}

// ---- likelihoods --------------------------------------------------------------------------------

// The variance of an honest result's error is that of the last rounding, plus a share of each of
// the square of the element, the mean square of its row and the mean square of all rows. The shares
// are fitted, once with the variance of the sums and once without it.
enum { OF_ELEMENT, OF_ROW, OF_ALL, HONEST };
#define ROUNDS_OF_FITTING 40

static double error_squared(const struct trial *t, int64_t i)
{
    return pow(t->got[i] - t->right[i], 2);
}

static double variance_at(const struct narrow *x, const double *of_sums, const double *parts,
                          int64_t i)
{
    double variance = x->last[i] + (of_sums ? of_sums[i] : 0);
    for (int k = 0; k < HONEST; k++)
        variance += parts[k] * x->honest[k][i];
    return variance;
}

// Improves the shares by one step of expectation-maximization.
static void parts_fit(const struct narrow *x, const double *of_sums, double *parts)
{
    double up[HONEST] = {0}, down[HONEST] = {0};
    for (int64_t i = 0; i < x->count; i++) {
        double variance = variance_at(x, of_sums, parts, i), error = error_squared(x->t, i);
        for (int k = 0; k < HONEST && variance > 0; k++) {
            up[k] += x->honest[k][i] * error / (variance * variance);
            down[k] += x->honest[k][i] / variance;
        }
    }
    for (int k = 0; k < HONEST; k++)
        parts[k] *= down[k] > 0 ? up[k] / down[k] : 0;
}

// The log-likelihood of the errors with fitted shares. of_sums: variance of the sums; NULL: 0.
static double likelihood(const struct narrow *x, const double *of_sums)
{
    double parts[HONEST] = {1e-5, 1e-5, 1e-5}, sum = 0;
    for (int i = 0; i < ROUNDS_OF_FITTING; i++)
        parts_fit(x, of_sums, parts);
    for (int64_t i = 0; i < x->count; i++) {
        double variance = variance_at(x, of_sums, parts, i);
        sum -= variance > 0 ? (log(variance) + error_squared(x->t, i) / variance) / 2 : 0;
    }
    return sum;
}

// The share of the error's energy that the sums cause. The energy of the last rounding is
// subtracted.
static double share_of_sums(const struct narrow *x)
{
    double error = 0, sums = 0;
    for (int64_t i = 0; i < x->count; i++) {
        error += error_squared(x->t, i) - x->last[i];
        sums += x->kept[i];
    }
    return error > 0 ? sums / error : INFINITY;
}

// ---- orders of additions ------------------------------------------------------------------------

static void order_try(struct narrow *x, int64_t block)
{
    struct trial *t = x->t;
    memset(x->sum, 0, (size_t)(3 * x->count) * sizeof(double)); // clears part and variance, too
    for (int panel = 0; panel < t->panel_count; panel++)
        block ? sum_by_blocks(x, panel, block) : sum_by_ranks(x, panel);
    double found = likelihood(x, x->variance);
    if (found <= x->likelihood)
        return;
    char how[64];
    if (block)
        snprintf(how, sizeof(how), "after each block of some %lld %s", (long long)block,
                 t->panels[0].setup.side == SIDE_Q ? "keys" : "queries");
    else
        snprintf(how, sizeof(how), "after each of %d ranks' parts", t->c->world_size);
    snprintf(x->text, sizeof(x->text),
             "%s is summed in 16 bits: its errors are those of a sum that is rounded to %s %s",
             report_tensor_name(t->in->tensor),
             case_choice_name(case_dtype_choices, (int)t->c->dtype), how);
    x->likelihood = found;
    memcpy(x->kept, x->variance, (size_t)x->count * sizeof(double));
}

static void panels_prepare(struct trial *t)
{
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        struct variant right = variant_none(p);
        if (p->setup.side == SIDE_KV)
            variant_key_gradient(p, &right, p->lse, p->delta);
        else
            variant_gradient(p, &right, p->lse, p->delta, true);
    }
}

static void honest_fill(struct narrow *x)
{
    const struct trial *t = x->t;
    double all = 0;
    for (int64_t i = 0; i < x->count; i++) {
        double step = step_of(t->c->dtype, t->right[i]);
        x->last[i] = step * step / 12;
        x->honest[OF_ELEMENT][i] = t->right[i] * t->right[i];
        all += x->honest[OF_ELEMENT][i];
    }
    for (int64_t i = 0; i < x->count; i++) {
        double row = 0;
        for (int64_t at = i / t->dim * t->dim; at < (i / t->dim + 1) * t->dim; at++)
            row += x->honest[OF_ELEMENT][at];
        x->honest[OF_ROW][i] = row / t->dim;
        x->honest[OF_ALL][i] = all / (double)x->count;
    }
}

static bool narrow_init(struct narrow *x, struct trial *t)
{
    *x = (struct narrow){.t = t, .count = (int64_t)t->rows * t->dim, .likelihood = -INFINITY};
    x->last = malloc((size_t)(8 * x->count) * sizeof(double));
    if (!x->last)
        return false;
    for (int k = 0; k < HONEST; k++)
        x->honest[k] = x->last + (k + 1) * x->count;
    x->sum = x->last + 4 * x->count;
    x->part = x->sum + x->count;
    x->variance = x->part + x->count;
    x->kept = x->variance + x->count;
    honest_fill(x);
    return true;
}

void narrow_find(struct trial *t, struct finding *result)
{
    static const int64_t blocks[] = {0, 16, 32, 64, 128, 256};
    enum report_tensor tensor = t->in->tensor;
    struct narrow x;
    if (t->c->dtype == DTYPE_FP32 || t->error < EXCESS * t->noise ||
        (tensor != TENSOR_DQ && tensor != TENSOR_DK && tensor != TENSOR_DV) || !narrow_init(&x, t))
        return;
    panels_prepare(t);
    for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks) && !trial_over(t); i++)
        if (blocks[i] > 0 || t->c->world_size > 2)
            order_try(&x, blocks[i]);
    double certain = x.likelihood - likelihood(&x, NULL), share = share_of_sums(&x);
    if (certain > CERTAIN && share > SHARE_LEAST && share < SHARE_MOST && !t->interrupted) {
        *result =
            (struct finding){.kind = DIAGNOSIS_NARROW_SUM,
                             .diagnosis = {.tensor = tensor, .explained = fmin(share, 1 / share)}};
        memcpy(result->diagnosis.text, x.text, sizeof(result->diagnosis.text));
    }
    free(x.last);
}

// ---- LSE ----------------------------------------------------------------------------------------

// Kernels round a weight relative to the running maximum of a row, so the error of their sum cannot
// be recomputed unless the first keys have the maximum. The size of the error in each row follows
// from the weights. These errors have both signs, unlike those of missing keys.
#define LSE_ROWS 8 // minimum number of rows
#define LSE_LEAST                                                                                  \
    0.1                   // minimum of the mean square error, in variances without the largest
                          // weight, which has no error if it is the running maximum itself
#define LSE_MOST      2.0 // maximum of the mean square error, in variances of all weights
#define LSE_LARGEST   5.0 // maximum error, in deviations
#define LSE_ONE_SIDED 3.5 // maximum |sum of errors|, in deviations

// The RMS rounding error of a number, as a fraction of it.
static double rounding_of(enum case_dtype dtype)
{
    return 0.204 * (dtype == DTYPE_FP16 ? 0x1p-10 : 0x1p-7);
}

// Returns the sum of the squares of a row's weights, which add up to 1. *largest: the largest
// square.
static double weights_squares(const struct panel *p, int row, double *largest)
{
    double squares = 0;
    *largest = 0;
    for (int64_t key = 0; key < p->keys; key++) {
        double square = p->p[row * p->columns + key] * p->p[row * p->columns + key];
        squares += square;
        *largest = fmax(*largest, square);
    }
    return squares;
}

void narrow_lse_find(struct trial *t, struct finding *result)
{
    double sum = 0, squares = 0, most = 0, largest = 0, rounding = rounding_of(t->c->dtype);
    int rows = 0;
    if (t->in->tensor != TENSOR_LSE || t->c->dtype == DTYPE_FP32 || trial_over(t))
        return;
    for (int i = 0; i < t->panel_count; i++) {
        struct panel *p = &t->panels[i];
        struct variant right = variant_none(p);
        variant_lse(p, &right, t->lse_tried + t->panel_first[i]);
        for (int row = 0; row < p->rows; row++) {
            int at = t->panel_first[i] + row;
            double top, all = weights_squares(p, row, &top), deviation = rounding * sqrt(all);
            if (!(deviation > 0) || !isfinite(t->right[at]))
                continue;
            double error = (t->got[at] - t->right[at]) / deviation;
            sum += error;
            squares += error * error;
            most += all - top > 0 ? error * error * all / (all - top) : 0;
            largest = fmax(largest, fabs(error));
            rows++;
        }
    }
    double mean = squares / (rows > 0 ? rows : 1);
    if (rows < LSE_ROWS || !(most > LSE_LEAST * rows) || !(mean < LSE_MOST) ||
        largest > LSE_LARGEST || fabs(sum) > LSE_ONE_SIDED * sqrt(squares))
        return;
    *result = (struct finding){.kind = DIAGNOSIS_ROUNDED,
                               .diagnosis = {.tensor = TENSOR_LSE, .explained = fmin(1, 1 / mean)}};
    snprintf(result->diagnosis.text, sizeof(result->diagnosis.text),
             "the errors of lse are those of weights that are rounded to %s before they are added "
             "up to the denominator, and of nothing else",
             case_choice_name(case_dtype_choices, (int)t->c->dtype));
}

// Maximum relative error of an exponential that kernels compute for 16-bit weights. A polynomial of
// degree 3 has 9e-5.
#define EXP_ERROR 0x1p-13

void narrow_exp_find(struct trial *t, struct finding *result)
{
    double least = 0, most = 0;
    if (t->in->tensor != TENSOR_LSE || t->c->dtype == DTYPE_FP32)
        return;
    for (int row = 0; row < t->rows; row++) {
        double error = t->got[row] - t->right[row];
        least = fmin(least, isfinite(t->right[row]) ? error : 0);
        most = fmax(most, isfinite(t->right[row]) ? error : 0);
    }
    double largest = fmax(most, -least);
    // Keys that are missing only make LSE smaller.
    bool keys = most < -least / 8;
    if (largest < RULES_LOGARITHM || largest > EXP_ERROR)
        return;
    *result = (struct finding){.kind = DIAGNOSIS_ROUNDED,
                               .diagnosis = {.tensor = TENSOR_LSE, .explained = 1}};
    snprintf(result->diagnosis.text, sizeof(result->diagnosis.text),
             "lse is off by up to %.1e: exponentials or logarithms are approximate%s; "
             "lse_tolerance %g accepts such errors",
             largest, keys ? ", or keys of little weight are missing" : "",
             1e-4 * ceil(largest / 1e-4));
}
