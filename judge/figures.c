// SPDX-License-Identifier: Apache-2.0
#include "judge/figures.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "plan/bias.h"
#include "plan/slice.h"

// Parts of the reference below which an error is not measured, see figures.h.
#define CHUNK_FLOOR 0.5
#define ROW_FLOOR   0.25

// Deviation of the logits that the limits are meant for: that of the sharp inputs.
#define LOGIT_DEVIATION 4.0

// Deviation of logits under which many keys share the weight of a query.
#define SPREAD_DEVIATION 2.0

// How many eps of their terms elements, rows and chunks may err by; and those elements and rows
// whose terms are not known but taken for what is typical.
#define ELEMENT_EPS 8.0
#define ROW_EPS     3.0
#define CHUNK_EPS   3.0
#define TYPICAL_EPS 9.0

struct limits {
    double tolerance, tolerance_grouped, rmse, row;
    double eps;  // largest relative error of P: of a rounding, or of what makes a logit of up to 8
    double step; // between neighbours where the dtype's relative precision ends
};

// Tolerances of bf16 and fp16 as TransformerEngine's tests have them. For fp32 ten times the error
// of sums of some hundred products. The other limits leave room for three to five times the noise
// of kernels that round P and dS to the dtype.
static struct limits dtype_limits(enum case_dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return (struct limits){2.5e-2, 3.5e-2, 2e-2, 5e-2, 0x1p-9, FLT_MIN};
    case DTYPE_FP16:
        return (struct limits){5e-3, 5e-3, 3e-3, 8e-3, 0x1p-12, 0x1p-24};
    case DTYPE_FP32:
        break;
    }
    return (struct limits){5e-5, 5e-5, 5e-5, 2e-4, 0x1p-21, FLT_MIN};
}

// Standard deviations of the inputs as judge/inputs.h draws them: the sharp ones give the logits
// theirs whatever the scale is.
struct deviations {
    double q, other;
};

static struct deviations input_deviations(const struct cp_case *c)
{
    if (c->inputs == INPUTS_TE)
        return (struct deviations){0.72, 0.72};
    return (struct deviations){LOGIT_DEVIATION / (case_scale(c) * sqrt(c->head_dim_qk)), 1};
}

static double logit_deviation(const struct cp_case *c)
{
    struct deviations d = input_deviations(c);
    return case_scale(c) * sqrt(c->head_dim_qk) * d.q * d.other;
}

// By how much the logits of a case with a scale of its own exceed those of others.
static double logit_excess(const struct cp_case *c)
{
    double deviation = logit_deviation(c);
    return deviation > LOGIT_DEVIATION ? deviation / LOGIT_DEVIATION : 1;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

// Logits are in fp32 whatever the dtype is: where they are large, its errors may exceed the
// dtype's.
static struct limits case_limits(const struct cp_case *c)
{
    struct limits limits = dtype_limits(c->dtype), logits = dtype_limits(DTYPE_FP32);
    double excess = logit_excess(c);
    limits.tolerance = larger(limits.tolerance, excess * logits.tolerance);
    limits.tolerance_grouped = larger(limits.tolerance_grouped, excess * logits.tolerance_grouped);
    limits.rmse = larger(limits.rmse, excess * logits.rmse);
    limits.row = larger(limits.row, excess * logits.row);
    limits.eps = larger(limits.eps, excess * logits.eps);
    return limits;
}

// The RMS of a tensor below which not even the nearest numbers of its dtype would keep half of the
// limit.
static double least_rms(struct limits limits)
{
    return 2 * limits.step / limits.rmse;
}

// ---- what a uniform softmax would give ----

static double quotient(int64_t pairs, int64_t tokens)
{
    return pairs > tokens ? (double)pairs / (double)tokens : 1;
}

static struct slice rectangle(const struct cp_case *c, int32_t sequence)
{
    struct case_band band = case_band(c, sequence);
    return (struct slice){.q_len = case_length(c, SIDE_Q, sequence),
                          .kv_len = case_length(c, SIDE_KV, sequence),
                          .offset = band.shift,
                          .left = band.left,
                          .right = band.right};
}

// RMS of out or dQ over queries that see `keys` keys each.
static double uniform_query_rms(const struct cp_case *c, enum report_tensor tensor, double keys)
{
    struct deviations d = input_deviations(c);
    double gradient = case_scale(c) * sqrt(c->head_dim_v) * d.other * d.other * d.other;
    return (tensor == TENSOR_OUT ? d.other : gradient) / sqrt(keys);
}

// RMS of dK or dV over keys that are seen by `queries` queries each, which see `keys` keys each.
static double uniform_key_rms(const struct cp_case *c, enum report_tensor tensor, double queries,
                              double keys)
{
    struct deviations d = input_deviations(c);
    double gradient = case_scale(c) * sqrt(c->head_dim_v) * d.other * d.other * d.q;
    return (tensor == TENSOR_DV ? d.other : gradient) * sqrt(queries) / keys;
}

static double span_rms(const struct cp_case *c, enum report_tensor tensor, const struct span *span)
{
    struct slice all = rectangle(c, span->sequence), part = all;
    if (tensor == TENSOR_OUT || tensor == TENSOR_DQ) {
        part.q_len = span->len;
        part.offset -= span->position;
        return uniform_query_rms(c, tensor, quotient(slice_pairs(&part), span->len));
    }
    part.kv_len = span->len;
    part.offset += span->position;
    double group = (double)c->heads / c->kv_heads;
    double queries = quotient(slice_pairs(&part), span->len) * group;
    return uniform_key_rms(c, tensor, queries, quotient(slice_pairs(&all), all.q_len));
}

double figures_uniform_logits(const struct cp_case *c, const struct span *span)
{
    struct deviations d = input_deviations(c);
    struct slice part = rectangle(c, span->sequence);
    part.q_len = span->len;
    part.offset -= span->position;
    int64_t pairs = slice_pairs(&part);
    double keys = quotient(pairs, span->len);
    return (double)pairs * c->head_dim_v * pow(d.other, 4) / (keys * keys);
}

// Of all spans of a chunk together.
static double uniform_rms(const struct cp_case *c, enum report_tensor tensor,
                          const struct span *spans, int count, int chunk, int64_t *tokens)
{
    double squares = 0;
    *tokens = 0;
    for (int i = 0; i < count; i++) {
        if (spans[i].chunk != chunk)
            continue;
        double rms = span_rms(c, tensor, &spans[i]);
        squares += rms * rms * (double)spans[i].len;
        *tokens += spans[i].len;
    }
    return *tokens > 0 ? sqrt(squares / (double)*tokens) : 1;
}

// ---- rules ----

// The less a mean is over, the less it says.
static double allowance(double elements)
{
    return 1 + 4 / sqrt(elements > 1 ? elements : 1);
}

// Deviation of what the dS of a row are multiplied by.
static double terms_factor(const struct cp_case *c, enum report_tensor tensor)
{
    struct deviations d = input_deviations(c);
    if (tensor == TENSOR_DQ)
        return d.other;
    return tensor == TENSOR_DK ? d.q : 0;
}

// fp32 in every dtype: ten times the error of logits of up to 30.
static struct figures_rule logarithm_rule(double excess)
{
    double limit = 1e-4 * excess;
    return (struct figures_rule){.tolerance = limit,
                                 .rmse_limit = limit,
                                 .row_limit = limit,
                                 .uniform = 1,
                                 .absolute = true};
}

struct figures_rule figures_rule(const struct cp_case *c, enum report_tensor tensor,
                                 const struct span *spans, int count, int chunk)
{
    int64_t tokens;
    if (tensor == TENSOR_LSE)
        return logarithm_rule(logit_excess(c));
    struct limits limits = case_limits(c);
    int dim = c->head_dim_qk < c->head_dim_v ? c->head_dim_qk : c->head_dim_v;
    bool grouped = c->heads != c->kv_heads;
    double uniform = uniform_rms(c, tensor, spans, count, chunk, &tokens);
    double rows = (double)tokens * c->kv_heads, factor = terms_factor(c, tensor);
    struct figures_rule rule = {
        .tolerance = grouped ? limits.tolerance_grouped : limits.tolerance,
        .rmse_limit = limits.rmse * allowance(rows * dim),
        .row_limit = limits.row * allowance(dim),
        .uniform = larger(uniform, least_rms(limits)),
    };
    rule.terms_element =
        ELEMENT_EPS * limits.eps / rule.tolerance * factor * sqrt(allowance(c->head_dim_qk));
    rule.terms_row = ROW_EPS * limits.eps / limits.row * factor;
    rule.terms_chunk = CHUNK_EPS * limits.eps / limits.rmse * factor;
    return rule;
}

// Most queries for each key, over the sequences.
static double queries_per_key(const struct cp_case *c)
{
    double most = 1;
    for (int32_t i = 0; i < c->batch; i++) {
        int64_t queries = case_length(c, SIDE_Q, i), keys = case_length(c, SIDE_KV, i);
        if (keys > 0 && (double)queries > most * (double)keys)
            most = (double)queries / (double)keys;
    }
    return most;
}

// RMS of the terms of an element of the bias's gradient, if one key has all the weight of a query;
// 0 where logits deviate too little for that. An element that all queries share has as many of them
// as there are for each key.
static double bias_terms(const struct cp_case *c)
{
    struct deviations d = input_deviations(c);
    double count = 1;
    if (logit_deviation(c) < SPREAD_DEVIATION)
        return 0;
    count *= bias_has_batch(c) ? 1 : c->batch;
    count *= bias_has_heads(c) ? 1 : c->heads;
    count *= bias_has_queries(c) ? 1 : queries_per_key(c);
    return d.other * d.other * sqrt(count * c->head_dim_v);
}

struct figures_rule figures_rule_sums(const struct cp_case *c, enum report_tensor tensor,
                                      double uniform, int64_t elements, int64_t row)
{
    if (tensor == TENSOR_MAX_LOGIT)
        return logarithm_rule(logit_excess(c));
    struct limits limits = case_limits(c);
    if (tensor == TENSOR_DSINK) // fp32 in every dtype
        limits.step = FLT_MIN;
    struct figures_rule rule = {
        .tolerance = limits.tolerance,
        .rmse_limit = limits.rmse * allowance((double)elements),
        .row_limit = limits.row * allowance((double)row),
        .uniform = larger(uniform, least_rms(limits)),
    };
    if (tensor == TENSOR_DSINK)
        rule.terms_element = 1;
    if (tensor == TENSOR_DBIAS) {
        double terms = bias_terms(c) * limits.eps, part = 1 / sqrt(row > 1 ? (double)row : 1);
        rule.terms_element = TYPICAL_EPS * terms / rule.tolerance;
        rule.terms_row = TYPICAL_EPS * terms * part / limits.row;
        rule.terms_chunk = CHUNK_EPS * terms * part / limits.rmse;
    }
    return rule;
}

// ---- finishing ----

struct figures_floors figures_floors(const struct figures_rule *rule)
{
    return (struct figures_floors){.element = larger(1, rule->uniform),
                                   .chunk = CHUNK_FLOOR * rule->uniform,
                                   .row = ROW_FLOOR};
}

struct figures figures_init(const struct figures_rule *rule, enum report_tensor tensor, int chunk)
{
    return (struct figures){.tensor = tensor,
                            .chunk = chunk,
                            .rmse_limit = rule->rmse_limit,
                            .worst_row_limit = rule->row_limit,
                            .worst_row.position = -1,
                            .first_bad.position = -1};
}

static double mean(double sum, int64_t elements)
{
    return sum / (elements > 0 ? (double)elements : 1);
}

// What a chunk is measured against.
static double chunk_scale(const struct figures_rule *rule, const struct figures_sums *sums,
                          int64_t elements)
{
    double rms = sqrt(mean(sums->expected_squares, elements));
    double terms = sqrt(mean(sums->terms_squares, elements));
    return larger(larger(rms, rule->terms_chunk * terms), figures_floors(rule).chunk);
}

void figures_finish(struct figures *f, const struct figures_rule *rule,
                    const struct figures_sums *sums)
{
    double scale = rule->absolute ? 1 : chunk_scale(rule, sums, f->elements);
    f->judged = f->elements;
    f->rmse_rel = sqrt(mean(sums->error_squares, f->elements)) / scale;
    f->worst_row_rel = sums->worst_row;
    f->judged = f->elements;
    if (f->mismatches > 0)
        f->broken |= RULE_ELEMENT;
    if (f->nonfinite > 0)
        f->broken |= RULE_NONFINITE;
    if (!(f->rmse_rel <= f->rmse_limit))
        f->broken |= RULE_RMSE;
    if (!(f->worst_row_rel <= f->worst_row_limit))
        f->broken |= RULE_ROW;
}

// ---- judging ----

void figures_tally_init(struct figures_tally *t, struct figures_rule rule,
                        enum report_tensor tensor, int chunk, struct row_error *rows,
                        int64_t row_count)
{
    *t = (struct figures_tally){
        .figures = figures_init(&rule, tensor, chunk),
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

static void element_bad(struct figures_tally *t, struct element where, int dim, double got,
                        double expected)
{
    struct figures *f = &t->figures;
    if (f->mismatches++ > 0)
        return;
    f->first_bad = where;
    f->first_bad.dim += dim;
    f->first_bad_got = got;
    f->first_bad_expected = expected;
}

void figures_tally_row(struct figures_tally *t, int64_t index, struct element where,
                       const float *got, const double *expected, int count, double terms)
{
    struct figures *f = &t->figures;
    double rms = row_rms(expected, count), squares = 0;
    double unit =
        larger(larger(rms, figures_floors(&t->rule).element), t->rule.terms_element * terms);
    double atol = t->rule.tolerance * (t->rule.absolute ? 1 : unit);
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
        double admitted = atol + t->rule.tolerance * fabs(got[i]);
        f->worst_element = larger(f->worst_element, error / admitted);
        if (error > admitted)
            element_bad(t, where, i, got[i], expected[i]);
        squares += error * error;
    }
    t->sums.error_squares += squares;
    t->sums.expected_squares += rms * rms * count;
    t->sums.terms_squares += terms * terms * count;
    t->rows[index] = (struct row_error){(float)sqrt(squares / count),
                                        (float)larger(rms, t->rule.terms_row * terms)};
}

// `least`: what a row is measured against if it is smaller than that itself.
static int64_t rows_worst(struct figures_tally *t, double least)
{
    int64_t worst = -1;
    for (int64_t i = 0; i < t->row_count; i++) {
        double scale = t->rule.absolute ? 1 : larger(t->rows[i].expected, least);
        double error = t->rows[i].error / scale;
        if (worst < 0 || error > t->sums.worst_row) {
            worst = i;
            t->sums.worst_row = error;
        }
    }
    return worst;
}

int64_t figures_tally_finish(struct figures_tally *t)
{
    double scale = chunk_scale(&t->rule, &t->sums, t->figures.elements);
    int64_t worst = rows_worst(t, figures_floors(&t->rule).row * scale);
    figures_finish(&t->figures, &t->rule, &t->sums);
    return worst;
}
