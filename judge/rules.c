// SPDX-License-Identifier: Apache-2.0
#include "judge/rules.h"

#include <float.h>

#include "judge/inputs.h"
#include "judge/source.h"
#include "plan/bias.h"
#include "plan/slice.h"
#include "plan/weight.h"

// Standard deviation of the logits for which the limits of fp32 errors hold.
#define LOGIT_DEVIATION 4.0

// Lowering all logits by this doubles their errors in fp32 (plan/weight.h), because a lowered logit
// has the errors of larger sums.
#define LOGIT_SHIFT 8.0

// Logits with a standard deviation below ALIKE differ by few steps of a 16-bit dtype. If it is
// above 1 softcap, some logits are at one of the two ends of the cap; above CAPPED softcaps most
// are.
#define ALIKE  0x1p-4
#define CAPPED 8

// Standard deviation of the elements of TransformerEngine's inputs.
#define TE_DEVIATION 0.72

// logit_excess() from which the errors of logits in fp32 are a tenth of the error of rounding P.
#define FP64_EXCESS_FP16 4
#define FP64_EXCESS_BF16 32

#define FP16_LARGEST 65504.0

// Deviation of the logits from which an error of fp64 in the largest of them may exceed 1e-6.
#define HUGE_LOGITS 1e6

// The largest of many dot products, as a multiple of their RMS.
#define PRODUCT_LARGEST 16

// Number of standard deviations in the limit of a slope. If the unit is above SLOPE_UNIT_MAX times
// the RMS of the reference, the limit of the RMS is used instead of deviations.
#define SLOPE_DEVIATIONS 3
#define SLOPE_UNIT_MAX   0.1

// Maximum relative loss of a matrix unit's fp32 sum per term: cuDNN and FlashAttention-2
// lose 1.1e-9 (bench/results/verdicts-2026-11-22.md).
#define LONG_SUM_TERM 0x1p-29

// Limit of the error of a sink's gradient, in units.
#define SINK_UNITS 5

// Noise in fp32 of a term of a sink's gradient, as a multiple of 2^-24 of the term, with logits of
// the usual size.
#define SINK_NOISE 16

// In rows of up to DIM_FEW elements all elements may cancel. In fp32 the remainder is the noise of
// terms around 1: NOISE_ONE.
#define DIM_FEW   2
#define NOISE_ONE 0x1p-22

// The factor of the RMS limit for n rows is at most 1 + RMS_ROWS / n.
#define RMS_ROWS 100

// Minimum of the RMS limit, in units, for the gradient of a bias that several sequences, heads or
// queries share. Kernels may deliver a gradient for each of them, which is rounded, and add these
// up: with a rounded P that is sqrt(3) units (bench/results/others-2026-11-29.md).
#define SHARED_RMS 2

static bool is_absolute(enum report_tensor tensor)
{
    return tensor == TENSOR_LSE || tensor == TENSOR_MAX_LOGIT;
}

// Products of more than this many numbers have errors in fp32 that grow with the root of their
// number.
#define DIM_USUAL 64

// Larger caps require a tanh that is accurate for small arguments.
#define CAP_LARGE 256

// The standard deviation of the logits before the softcap. A product of vectors with unit variance
// deviates by the root of their length. With sharp inputs it does not depend on the scale.
static double logit_deviation(const struct cp_case *c)
{
    if (c->source)
        return fabs(case_scale(c)) * sqrt(c->head_dim_qk) * input_rms(c, INPUT_Q) *
               input_rms(c, INPUT_K);
    if (c->inputs == INPUTS_TE)
        return fabs(case_scale(c)) * sqrt(c->head_dim_qk) * TE_DEVIATION * TE_DEVIATION;
    return LOGIT_DEVIATION;
}

static double logit_excess(const struct cp_case *c)
{
    return fmax(1, logit_deviation(c) / LOGIT_DEVIATION);
}

// The part of the weights of a row, 0 to 1, that have nearly the same value, or one of two. A
// kernel rounds all of these up, or all down, depending on the maximum against which it rounds
// them: with or without the sink, or an older one.
static double weights_alike(const struct cp_case *c)
{
    double deviation = logit_deviation(c);
    if (c->bias != BIAS_NONE)
        return 0;
    if (deviation < ALIKE)
        return 1;
    // The slopes of simulated kernels stay below it (bench/results/softcap-slope-2026-11-29.md).
    return c->softcap != 0 ? fmax(0, fmin((deviation / c->softcap - 1) / (CAPPED - 1), 1)) : 0;
}

static double dim_excess(const struct cp_case *c)
{
    return c->head_dim_qk > DIM_USUAL ? sqrt((double)c->head_dim_qk / DIM_USUAL) : 1;
}

float rules_cap_error(const struct cp_case *c)
{
    double logits = LOGIT_DEVIATION * logit_excess(c) * dim_excess(c);
    return c->softcap != 0 ? (float)(4 * 2 * 0x1p-24 * logits / c->softcap) : 0;
}

static double te_tolerance(const struct cp_case *c)
{
    switch (c->dtype) {
    case DTYPE_BF16:
        return c->heads == c->kv_heads ? 2.5e-2 : 3.5e-2;
    case DTYPE_FP16:
        return 5e-3;
    case DTYPE_FP32:
        break;
    }
    return 0;
}

int64_t rules_longest_sum(const struct cp_case *c, enum report_tensor tensor)
{
    bool keys = tensor == TENSOR_OUT || tensor == TENSOR_DQ;
    int64_t longest = 0;
    if (!keys && tensor != TENSOR_DK && tensor != TENSOR_DV)
        return 0;
    for (int32_t i = 0; i < c->batch; i++) {
        int64_t length = case_length(c, keys ? SIDE_KV : SIDE_Q, i);
        longest = length > longest ? length : longest;
    }
    struct case_band band = case_band(c, 0);
    bool bounded = band.left < SLICE_UNBOUNDED && band.right < SLICE_UNBOUNDED;
    int64_t seen = bounded ? band.left + band.right + 1 : longest;
    return seen < longest ? (seen > 0 ? seen : 0) : longest;
}

struct rules rules_of(const struct cp_case *c, enum report_tensor tensor)
{
    struct rules r = {.rms = 1.5,
                      .slope = c->dtype == DTYPE_BF16 ? 3e-4 : 1e-4,
                      .row = 20,
                      .element = 4,
                      .step = c->dtype == DTYPE_BF16 ? 0x1p-7 : 0x1p-10,
                      .least = c->dtype == DTYPE_FP16 ? 0x1p-24 : FLT_MIN,
                      .largest = c->dtype == DTYPE_FP16 ? FP16_LARGEST : FLT_MAX,
                      .rounding = 0.1, // the mean rounding error over all magnitudes is 0.21 steps
                      .narrow = c->dtype == DTYPE_BF16   ? 0x1p-7
                                : c->dtype == DTYPE_FP16 ? 0x1p-10
                                                         : 0x1p-23,
                      .te = te_tolerance(c),
                      .excess = logit_excess(c),
                      .cap = fmin(c->softcap, CAP_LARGE)};
    r.element_slope = r.element * r.step;
    if (c->dtype == DTYPE_FP32) {
        r.rms = 2.5;
        r.slope = 3e-6;
        r.row = 32;
        r.element = 5;
        if (c->head_dim_v <= DIM_FEW && (tensor == TENSOR_OUT || tensor == TENSOR_DV))
            r.noise = NOISE_ONE;
        r.rounding = 1 + 4 * r.excess * dim_excess(c); // of logits of 16 to 32, and of LSE
        r.element_slope = RULES_LOGARITHM * r.excess * dim_excess(c);
    }
    if (tensor == TENSOR_DBIAS && c->dtype != DTYPE_FP32 && !bias_is_once(c))
        r.rms_least = SHARED_RMS;
    if (c->dtype == DTYPE_FP32 || is_absolute(tensor) || tensor == TENSOR_DSINK) {
        r.step = 0x1p-23;
        r.least = FLT_MIN;
        r.largest = FLT_MAX;
    }
    r.absolute = is_absolute(tensor);
    if (r.absolute)
        r.excess *= 1 + weight_shift(c) / LOGIT_SHIFT;
    if (r.absolute)
        r.excess *= dim_excess(c);
    if (c->dtype != DTYPE_FP32 && (tensor == TENSOR_OUT || tensor == TENSOR_DV)) {
        r.slope += weights_alike(c) * r.step / 2;
        r.rounding = fmax(r.rounding, weights_alike(c) * 0.5 / r.rms);
    }
    if (tensor == TENSOR_DSINK)
        r.row = r.element = SINK_UNITS;
    if (tensor == TENSOR_LSE) {
        r.te = 0;
        r.tolerance = c->lse_tolerance;
    }
    if (c->dtype != DTYPE_FP32)
        r.long_sum = LONG_SUM_TERM * (double)rules_longest_sum(c, tensor);
    return r;
}

double rules_product_squares(const struct cp_case *c)
{
    double product = input_rms(c, INPUT_DO) * input_rms(c, INPUT_V);
    return (c->head_dim_v - 1) * product * product;
}

// Estimate of the largest dS of a case, which the fast reference rounds to the dtype.
static double gradient_largest(const struct cp_case *c)
{
    return c->training ? PRODUCT_LARGEST * sqrt(rules_product_squares(c)) : 0;
}

bool rules_want_fp64(const struct cp_case *c)
{
    if (c->dtype == DTYPE_FP16 && c->source && gradient_largest(c) > FP16_LARGEST)
        return true;
    return logit_excess(c) > (c->dtype == DTYPE_FP16 ? FP64_EXCESS_FP16 : FP64_EXCESS_BF16);
}

bool rules_logits_huge(const struct cp_case *c)
{
    return logit_deviation(c) > HUGE_LOGITS;
}

// ---- the end ------------------------------------------------------------------------------------

static double quotient(double a, double b)
{
    return b > 0 ? a / b : a > 0 ? INFINITY : 0;
}

// Errors of logarithms are absolute, and only the element rule applies.
static void finish_absolute(const struct rules_sums *s, const struct rules_worst *w,
                            struct figures *f)
{
    double n = s->elements > 0 ? (double)s->elements : 1;
    f->rmse_rel = sqrt(s->error_squares / n);
    f->rmse_limit = sqrt(s->admitted_squares / n);
    f->worst_row_rel = w->element;
    f->worst_row_limit = 1;
    f->remark = s->long_sums > 0 ? REMARK_LONG_SUM : REMARK_NONE;
}

// The slope that noise may have. If everything in a tensor cancels, the remainder and its slope are
// noise, and the limit of the RMS is also that of the slope. Otherwise rows contribute to the slope
// with random signs and different sizes. Equal rows contribute with the same sign, as the twin's
// slope shows.
static double slope_noise(const struct rules *r, const struct rules_sums *s, double unit,
                          double rms_limit)
{
    if (!(unit < SLOPE_UNIT_MAX))
        return rms_limit;
    double deviation = sqrt(s->twin_product_squares);
    double twin = quotient(deviation, s->reference_squares);
    double alike = quotient(fabs(s->twin_product), deviation);
    return fmax(SLOPE_DEVIATIONS, r->rms * alike) * rules_allowance(s) *
           fmax(twin, unit / sqrt(rules_rows(s)));
}

static double rms_allowance(const struct rules_sums *s)
{
    return fmin(rules_allowance(s), 1 + RMS_ROWS / rules_rows(s));
}

static void finish_relative(const struct rules *r, const struct rules_sums *s,
                            const struct rules_worst *w, struct figures *f)
{
    struct rules_units units = rules_units(r, s);
    double n = rules_elements(s);
    double reference = sqrt(s->reference_squares / n), error = sqrt(s->error_squares / n);
    double unit = quotient(units.rms, reference);
    double admitted = fmax(r->rms * rms_allowance(s), r->rms_least) * units.rms;
    f->rmse_rel = quotient(error, reference);
    f->rmse_limit = quotient(admitted, reference);
    f->twin_rel = unit;
    f->slope = s->reference_squares > 0 ? s->product / s->reference_squares : 0;
    f->slope_limit = r->slope + slope_noise(r, s, unit, f->rmse_limit);
    f->worst_row_rel = w->row;
    f->worst_row_limit = r->row * rules_allowance(s);
    bool is_long = !(f->rmse_rel <= f->rmse_limit) || !(fabs(f->slope) <= f->slope_limit);
    f->rmse_limit += r->long_sum;
    f->slope_limit += r->long_sum;
    if (!(error <= admitted + r->long_sum * reference))
        f->broken |= RULE_RMSE;
    if (!(fabs(f->slope) <= f->slope_limit))
        f->broken |= RULE_SLOPE;
    bool zeros = s->reference_squares > 0 && f->rmse_limit >= 1 && f->slope_limit >= 1;
    f->remark = zeros ? REMARK_ZEROS_PASS : is_long ? REMARK_LONG_SUM : REMARK_NONE;
    if (!(w->row <= f->worst_row_limit))
        f->broken |= RULE_ROW;
}

void rules_finish(const struct rules *r, const struct rules_sums *s, const struct rules_worst *w,
                  struct figures *f)
{
    f->judged = s->elements;
    f->mismatches = w->mismatches;
    f->nonfinite = s->nonfinite;
    f->te_mismatches = s->te_mismatches;
    f->max_abs = s->error_largest;
    f->worst_element = w->element;
    f->broken = 0;
    if (r->absolute)
        finish_absolute(s, w, f);
    else
        finish_relative(r, s, w, f);
    if (!(w->element <= 1))
        f->broken |= RULE_ELEMENT;
    if (s->nonfinite > 0)
        f->broken |= RULE_NONFINITE;
    if (s->zeros > 0)
        f->broken |= RULE_ZERO;
    if (f->broken)
        f->remark = REMARK_NONE;
}

double rules_sink_unit(const struct rules *r, const struct rules_sink *s)
{
    double queries = s->queries > 1 ? (double)s->queries : 1;
    double chance = fmin(1, RULES_ROWS_FEW / queries) * r->narrow * sqrt(s->term_squares);
    double noise = 0x1p-24 * sqrt(s->term_squares) * (SINK_NOISE * r->excess + sqrt(queries));
    return sqrt(s->twin_squares) + chance + noise + 0x1p-22 * fabs(s->reference) + FLT_MIN;
}

static int sink_refuse(struct rules_sinks *sums)
{
    return sums->mismatches++ == 0 ? RULES_FIRST_BAD : 0;
}

int rules_sinks_add(const struct rules *r, struct rules_sinks *sums, const struct rules_sink *head,
                    double got)
{
    double unit = rules_sink_unit(r, head), error = got - head->reference;
    int place = sums->heads++ == 0 ? RULES_WORST : 0;
    if (!isfinite(got)) {
        sums->nonfinite++;
        return place | sink_refuse(sums);
    }
    sums->te_mismatches += !rules_te(r, got, head->reference);
    sums->error_squares += error * error;
    sums->unit_squares += unit * unit;
    sums->reference_squares += head->reference * head->reference;
    sums->product += error * head->reference;
    sums->unit_products += unit * fabs(head->reference);
    sums->max_abs = fmax(sums->max_abs, fabs(error));
    sums->not_zero += fabs(head->reference) > r->element * unit;
    if (fabs(error) / unit > sums->worst) {
        sums->worst = fabs(error) / unit;
        place |= RULES_WORST;
    }
    return fabs(error) <= r->element * unit ? place : place | sink_refuse(sums);
}

void rules_sinks_finish(const struct rules *r, const struct rules_sinks *s, struct figures *f)
{
    double reference = sqrt(s->reference_squares), unit = sqrt(s->unit_squares);
    f->judged = s->heads;
    f->mismatches = s->mismatches;
    f->nonfinite = s->nonfinite;
    f->te_mismatches = s->te_mismatches;
    f->max_abs = s->max_abs;
    f->worst_element = s->worst / r->element;
    f->rmse_rel = quotient(sqrt(s->error_squares), reference);
    f->rmse_limit = quotient(r->element * unit, reference);
    f->twin_rel = quotient(unit, reference);
    f->slope = s->reference_squares > 0 ? s->product / s->reference_squares : 0;
    f->slope_limit = quotient(r->element * s->unit_products, s->reference_squares);
    f->worst_row_rel = s->worst;
    f->worst_row_limit = r->element;
    f->broken = s->nonfinite > 0 ? RULE_NONFINITE : 0;
    if (s->mismatches > s->nonfinite)
        f->broken |= RULE_ELEMENT;
    bool zeros = s->reference_squares > 0 && s->not_zero == 0 && f->broken == 0;
    f->remark = zeros ? REMARK_ZEROS_PASS : REMARK_NONE;
}
