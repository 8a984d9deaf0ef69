// SPDX-License-Identifier: Apache-2.0
#include "rank/figures.h"

#include <math.h>
#include <string.h>

// Parts of the reference below which an error is not measured, see figures.h.
#define CHUNK_FLOOR 0.5
#define ROW_FLOOR   0.25

struct limits {
    double tolerance, tolerance_grouped, rmse, row;
};

// Tolerances of bf16 and fp16 as TransformerEngine's tests have them.
static struct limits dtype_limits(enum case_dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return (struct limits){2.5e-2, 3.5e-2, 3e-2, 1e-1};
    case DTYPE_FP16:
        return (struct limits){5e-3, 5e-3, 4e-3, 1.25e-2};
    case DTYPE_FP32:
        break;
    }
    return (struct limits){2e-5, 2e-5, 2e-5, 1e-4};
}

// Standard deviations of the inputs as kernels/inputs.h draws them.
struct deviations {
    double q, other;
};

static struct deviations input_deviations(const struct cp_case *c)
{
    if (c->inputs == INPUTS_TE)
        return (struct deviations){0.72, 0.72};
    return (struct deviations){4, 1};
}

// RMS of a tensor under a uniform softmax over all keys.
static double uniform_rms(const struct cp_case *c, enum report_tensor tensor)
{
    struct deviations d = input_deviations(c);
    double keys = c->seqlen_kv > 1 ? (double)c->seqlen_kv : 1;
    double score_gradient = case_scale(c) * sqrt(c->head_dim_v) * d.other * d.other;
    switch (tensor) {
    case TENSOR_OUT:
        return d.other / sqrt(keys);
    case TENSOR_DQ:
        return score_gradient * d.other / sqrt(keys);
    case TENSOR_DK:
        return score_gradient * d.q / keys;
    case TENSOR_DV:
        return d.other / keys;
    case TENSOR_LSE:
    case TENSOR_COUNT:
        break;
    }
    return 1;
}

struct figures_rule figures_rule(const struct cp_case *c, enum report_tensor tensor)
{
    // fp32 in every dtype. Logits of up to 30 carry errors of a few 1e-6 times their size.
    if (tensor == TENSOR_LSE)
        return (struct figures_rule){1e-4, 1e-4, 1e-4, 1, true};
    struct limits limits = dtype_limits(c->dtype);
    return (struct figures_rule){
        .tolerance = c->heads == c->kv_heads ? limits.tolerance : limits.tolerance_grouped,
        .rmse_limit = limits.rmse,
        .row_limit = limits.row,
        .floor = CHUNK_FLOOR * uniform_rms(c, tensor),
    };
}

void tally_init(struct tally *t, struct figures_rule rule, enum report_tensor tensor, int chunk,
                struct row_error *rows, int64_t row_count)
{
    *t = (struct tally){
        .figures = {.tensor = tensor,
                    .chunk = chunk,
                    .rmse_limit = rule.rmse_limit,
                    .worst_row_limit = rule.row_limit,
                    .worst_row.position = -1,
                    .first_bad.position = -1},
        .rule = rule,
        .rows = rows,
        .row_count = row_count,
    };
    memset(rows, 0, (size_t)row_count * sizeof(*rows));
}

static double row_rms(const double *expected, int count)
{
    double squares = 0;
    for (int i = 0; i < count; i++)
        squares += isfinite(expected[i]) ? expected[i] * expected[i] : 0;
    return sqrt(squares / count);
}

static void element_bad(struct tally *t, struct element where, int dim, double got, double expected)
{
    struct figures *f = &t->figures;
    if (f->mismatches++ > 0)
        return;
    f->first_bad = where;
    f->first_bad.dim = dim;
    f->first_bad_got = got;
    f->first_bad_expected = expected;
}

void tally_row(struct tally *t, int64_t index, struct element where, const float *got,
               const double *expected, int count)
{
    struct figures *f = &t->figures;
    double rms = row_rms(expected, count), squares = 0;
    double atol = t->rule.tolerance * (t->rule.absolute || rms < 1 ? 1 : rms);
    f->elements += count;
    for (int i = 0; i < count; i++) {
        if (!isfinite(got[i]) || !isfinite(expected[i])) {
            // Not in the sums, which it would swallow. Equal infinities are right.
            f->nonfinite += !isfinite(got[i]) && isfinite(expected[i]);
            if (!(got[i] == expected[i]))
                element_bad(t, where, i, got[i], expected[i]);
            continue;
        }
        double error = fabs(got[i] - expected[i]);
        if (error > f->max_abs)
            f->max_abs = error;
        if (error > atol + t->rule.tolerance * fabs(got[i]))
            element_bad(t, where, i, got[i], expected[i]);
        squares += error * error;
    }
    t->error_squares += squares;
    t->expected_squares += rms * rms * count;
    t->rows[index] = (struct row_error){(float)sqrt(squares / count), (float)rms};
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

// `least`: what a row is measured against if it is smaller than that itself.
static int64_t rows_worst(struct tally *t, double least)
{
    int64_t worst = -1;
    for (int64_t i = 0; i < t->row_count; i++) {
        double scale = t->rule.absolute ? 1 : larger(t->rows[i].expected, least);
        double error = t->rows[i].error / scale;
        if (worst < 0 || error > t->figures.worst_row_rel) {
            worst = i;
            t->figures.worst_row_rel = error;
        }
    }
    return worst;
}

int64_t tally_finish(struct tally *t)
{
    struct figures *f = &t->figures;
    double elements = f->elements > 0 ? (double)f->elements : 1;
    double scale = larger(sqrt(t->expected_squares / elements), t->rule.floor);
    f->rmse_rel = sqrt(t->error_squares / elements) / (t->rule.absolute ? 1 : scale);
    int64_t worst = rows_worst(t, ROW_FLOOR * scale);
    if (f->mismatches > 0)
        f->broken |= RULE_ELEMENT;
    if (f->nonfinite > 0)
        f->broken |= RULE_NONFINITE;
    if (!(f->rmse_rel <= f->rmse_limit))
        f->broken |= RULE_RMSE;
    if (!(f->worst_row_rel <= f->worst_row_limit))
        f->broken |= RULE_ROW;
    return worst;
}
