// SPDX-License-Identifier: Apache-2.0
// The rules of a verdict. Each chunk of a tensor on a rank is compared with the reference and with
// the twin, an honest kernel in high precision (judge/cpu/expected.h). A row is one token's vector
// of one head. Limits are those of bf16 and fp16, in brackets those of fp32. n is the effective
// number of rows that contribute to the twin's error; rows that see nothing do not count. A mean
// over few rows is imprecise, so limits are multiplied by 1 + 6 / sqrt(n).
//
// - unit: the largest of the twin's RMS error; half of the error of rounding the reference to the
//   dtype [5 steps]; 2^-22 of the RMS of the terms that cancel (fp32, head_dim_v 1 or 2, out and
//   dv: 2^-22); 1/5 of a step at these terms, times 4 / n where n > 4. Terms: see
//   judge/cpu/expected.h.
// - rms: RMS error <= 1.5 [2.5] units. The factor of this limit is 1 + 100 / n if that is smaller.
//   The limit is at least 2 units for dbias of a bias that several sequences, heads or queries
//   share.
// - slope: |<error, reference>| / <reference, reference> <= 3e-4, fp16 1e-4 [3e-6], + 3 standard
//   deviations of the slope that the twin's rows have by chance. It shows a wrong scale. Equal rows
//   have equal rounding errors, and their slopes add up. If 1.5 [2.5] times the twin's own slope is
//   more than 3 deviations, that is added instead.
// - row: RMS error of a row <= 20 [32] times the largest of the twin's error there, the unit, and
//   3/100 [1 1/2] of a step of the row's terms that cancel.
// - element: error <= 4 [5] times the largest of the twin's largest error in the chunk, 4 units,
//   and 3/100 [1 1/2] of a step of the row's terms that cancel; or <= 4 [64] steps of the dtype at
//   the element. The limit of LSE admits as much for a single P in fp32. The [5] steps of the
//   unit and the [64] here grow with the errors of logits, as the limit of LSE does.
// - zero: results of a query that sees no key, or of a key that no query sees, are exactly zero.
// - nonfinite: finite where the reference is, else the same infinity. That infinity is also right
//   where the reference plus 4 [5] steps exceeds the largest number of the dtype.
//   Padding is exactly zero.
//
// - alike weights: the logits deviate by less than 1/16, or by more than 8 times the softcap. Then
//   the weights of a row are nearly equal, or have one of two values. With bf16 and fp16 a kernel
//   rounds all of them up, or all down. The limit of rms is at least half a step for out and dv,
//   and that of the slope has half a step more, unless a bias makes the logits different. From 1 to
//   8 times the softcap a growing part of this half step counts.
// - long sums: the fp32 sums of matrix units truncate, which makes long sums smaller by about 2^-30
//   for each term. With bf16 and fp16 the limits of rms and slope are larger by 2^-29 for each term
//   of the longest sum (rules_longest_sum()), with a remark.
//
// - zeros pass: the limits of rms and slope are as large as the reference, which is not zero. A
//   remark says so.
//
// LSE and largest logits, fp32 always: error <= 2^-24 * (128 + 8 |value| + 4 min(softcap, 256)) *
// (deviation of the logits / 4) * sqrt(head_dim_qk / 64), factors at least 1, * (1 + weight_shift()
// / 8). LSE has the case's lse_tolerance more; and 2^-30 for each key, with a remark, because long
// sums stagnate. A sink's gradient, fp32 always: error <= 5 units of its head (rules_sink_unit()).
#ifndef CPATTN_JUDGE_RULES_H
#define CPATTN_JUDGE_RULES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/report.h"
#include "plan/case.h"

#ifdef __CUDACC__
#define RULES_INLINE static __host__ __device__ __forceinline__
#else
#define RULES_INLINE static inline
#endif

struct rules {
    double rms, slope, row, element; // the limits above
    double rms_least;                // minimum of the RMS limit, in units; 0: none
    double element_slope;            // limit of an element's error, relative to the element
    double step;                     // distance of neighbours at 1 in the tensor's dtype
    double least;                    // distance of neighbours at 0
    double largest;                  // largest finite number
    double rounding;                 // minimum of the unit, in steps at the reference's RMS
    double narrow;                   // step in the case's dtype
    double noise;                    // absolute minimum of the unit
    double te;                       // TransformerEngine's atol and rtol; 0: it has no rule
    double excess;                   // factor of the errors of logits larger than usual, >= 1
    double cap;       // the softcap, at most 256: tanh near 1 may have an error of one bit
    double long_sum;  // allowance for long sums, relative to the reference
    double tolerance; // of LSE, as the case asks for
    bool absolute;    // LSE and largest logits
};
struct rules rules_of(const struct cp_case *c, enum report_tensor tensor);

// Maximum number of terms of a sum over keys (out, dq) or over queries (dk, dv) of the case, from
// its lengths and its window. 0 for other tensors.
int64_t rules_longest_sum(const struct cp_case *c, enum report_tensor tensor);

// The part of the products of dP and delta in the squares of the terms: the square of the RMS that
// dP would have if its products did not cancel. The rounding errors of a sum are in proportion to
// its products, even if the sum is small: dP is summed in fp32, and delta uses an out that is
// rounded to the dtype. 0 with one product, which cannot cancel.
double rules_product_squares(const struct cp_case *c);

// True if the logits of a case with a 16-bit dtype are too large for a reference in fp32; then it
// is computed in fp64.
bool rules_want_fp64(const struct cp_case *c);

// True if the logits are so large that their rounding errors in fp64 change P. Then the passes over
// queries and over keys have to compute a logit by the same operations, or P of the second does not
// fit the LSE of the first.
bool rules_logits_huge(const struct cp_case *c);

// ---- the first pass ---------------------------------------------------------------------------

// Sums over the judged elements of a chunk. Elements whose result or reference is not finite are
// only counted.
struct rules_sums {
    int64_t elements, rows;
    int64_t empty;         // elements to which no visible pair contributes
    int64_t nonfinite;     // see the rule
    int64_t zeros;         // elements that must be zero and are not; also in the other sums
    int64_t te_mismatches; // rules_te()
    int64_t long_sums;     // LSE: within the limit for its keys only
    double error_squares, twin_squares, reference_squares, terms_squares;
    double product;                     // sum of error * reference
    double twin_product;                // sum of (twin - reference) * reference
    double twin_product_squares;        // over rows: square of a row's twin_product
    double twin_fourths;                // over rows: square of a row's twin_squares
    double admitted_squares;            // LSE and largest logits: squares of their limits
    double error_largest, twin_largest; // absolute
};

// TransformerEngine's rule for an element, literally. True also if it has no rule.
RULES_INLINE bool rules_te(const struct rules *r, double got, double reference)
{
    return r->te == 0 || fabs(got - reference) <= r->te + r->te * fabs(got);
}

// True if an element that is not finite is right, or the reference is not finite and equal.
RULES_INLINE bool rules_infinite(const struct rules *r, double got, double reference)
{
    bool overflows = fabs(reference) * (1 + r->element * r->step) >= r->largest;
    return got == reference || (isinf(got) && (got > 0) == (reference > 0) && overflows);
}

// The twin's error. Where the twin overflows, the error of rounding the reference takes its place.
RULES_INLINE double rules_twin(const struct rules *r, double twin, double reference)
{
    return isfinite(twin) ? twin - reference : 0.3 * r->step * reference;
}

// Limit of the error of a small LSE. In fp32 a P may have the same relative error.
#define RULES_LOGARITHM (128 * 0x1p-24)

// Limit of the error of an LSE or a largest logit, without the term for the number of keys, which
// rules_logarithm_keys() returns.
RULES_INLINE double rules_logarithm(const struct rules *r, double reference)
{
    return (RULES_LOGARITHM + 0x1p-24 * (8 * fabs(reference) + 4 * r->cap)) * r->excess +
           r->tolerance;
}

RULES_INLINE double rules_logarithm_keys(int64_t keys)
{
    return 0x1p-30 * (double)keys;
}

// ---- the second pass --------------------------------------------------------------------------

// Effective number of rows: smaller than the number of rows if a few rows have most of the twin's
// error.
RULES_INLINE double rules_rows(const struct rules_sums *s)
{
    double rows = s->rows > 1 ? (double)s->rows : 1;
    if (!(s->twin_fourths > 0))
        return rows;
    return fmax(1.0, fmin(rows, s->twin_squares * s->twin_squares / s->twin_fourths));
}

// Factor of the limits, which is larger for means over few rows.
RULES_INLINE double rules_allowance(const struct rules_sums *s)
{
    return 1 + 6 / sqrt(rules_rows(s));
}

// Error of the slope of a softcap, 1 - tanh^2, in the twin: twice the error of a tanh in fp32,
// which may be two steps of the numbers just below 1. Where logits are far above the cap, this
// error exceeds the slope.
#define RULES_CAP_ERROR 0x1p-22F

// The part of that error in proportion to the slope: four times the error of logits in fp32,
// divided by the cap. It is large enough to remain if the twin's own error has the other sign.
float rules_cap_error(const struct cp_case *c);

// The twin's slope of a softcap: too large if `odd`, else too small. `odd` alternates along a row
// of scores.
RULES_INLINE float rules_cap_slope(float slope, float cap_error, bool odd)
{
    float error = RULES_CAP_ERROR + cap_error * slope;
    return odd ? slope + error : slope - error;
}

// Number of elements to which visible pairs contribute, at least 1.
RULES_INLINE double rules_elements(const struct rules_sums *s)
{
    return s->elements > s->empty ? (double)(s->elements - s->empty) : 1;
}

// With up to this many rows or queries, the rounding errors may by chance be close to 0.
#define RULES_ROWS_FEW 4.0

// Units of a chunk, from its sums.
struct rules_units {
    double rms;         // the unit
    double element;     // limit of an element by the twin's largest error, or 4 units
    double row_element; // limit of an element, in units of its row
};

RULES_INLINE struct rules_units rules_units(const struct rules *r, const struct rules_sums *s)
{
    double n = rules_elements(s);
    double rounding = r->rounding * (r->step * sqrt(s->reference_squares / n) + r->least);
    double unit = fmax(sqrt(s->twin_squares / n), rounding);
    double terms = sqrt(s->terms_squares / n);
    // In few rows the twin may by chance have almost no rounding error.
    double chance = 0.2 * fmin(1.0, RULES_ROWS_FEW / rules_rows(s)) * r->step * terms;
    unit = fmax(fmax(fmax(unit, r->noise), 0x1p-22 * terms), chance);
    double allowance = r->element * rules_allowance(s);
    struct rules_units units = {unit, allowance * fmax(s->twin_largest, 4 * unit), allowance};
    return units;
}

// Unit of a row, used if it is larger than the chunk's unit: the twin's RMS error in the row, or
// the rounding error of the terms that cancel. The twin may by chance have little error in one row.
RULES_INLINE double rules_row_unit(const struct rules *r, double twin, double terms)
{
    return fmax(twin, 0.3 * r->rounding * r->step * terms);
}

// The error of a row in units, from the RMS errors of its elements and rules_row_unit().
RULES_INLINE double rules_row(const struct rules_units *u, double error, double row_unit)
{
    double unit = fmax(u->rms, row_unit);
    return unit > 0 ? error / unit : error > 0 ? (double)INFINITY : 0;
}

// The limit of the error of an element of 0, in a row with this rules_row_unit(). A row that has
// nearly all terms of the chunk has few of its elements, and the twin may by chance have little
// error in them.
RULES_INLINE double rules_element_least(const struct rules *r, const struct rules_units *u,
                                        double row_unit)
{
    return fmax(fmax(u->element, u->row_element * row_unit), r->element * r->least);
}

// The error of an element divided by its limit; more than 1 is a mismatch. For LSE and largest
// logits the limit is rules_logarithm() instead.
RULES_INLINE double rules_element(const struct rules *r, const struct rules_units *u, double error,
                                  double got, double row_unit)
{
    double limit = fmax(rules_element_least(r, u, row_unit), r->element_slope * fabs(got));
    return fabs(error) / limit;
}

// The worst values of a chunk. Elements that break the rules zero and nonfinite are mismatches,
// too, but not in `element`.
struct rules_worst {
    double row, element; // rules_row(), rules_element()
    int64_t mismatches;
};

// ---- the end ----------------------------------------------------------------------------------

// Fills the figures from the sums and the worst values, with the broken rules: everything except
// tensor, chunk, elements (judged is filled), the worst row's place and the first bad element.
// Pure.
void rules_finish(const struct rules *r, const struct rules_sums *s, const struct rules_worst *w,
                  struct figures *f);

// ---- the gradients of sinks -------------------------------------------------------------------

// Sums over all queries of a head on all ranks. A term is -p_sink * delta; the twin uses its own
// delta.
struct rules_sink {
    double reference;    // of the terms
    double twin_squares; // (twin's term - term)^2
    double term_squares; // rules_sink_square()
    int64_t queries;     // that see a key
};

// Square of a term if the products of its delta do not cancel, from the weight of the sink and
// rules_product_squares(). The keys have the rest of the weight, and out is in proportion to it.
RULES_INLINE double rules_sink_square(double weight, double delta, double products)
{
    double rest = 1 - weight;
    return weight * weight * (delta * delta + rest * rest * products);
}

// The unit of a head's gradient: the error of the twin's deltas in a sum with random signs, plus
// the noise of a sum in fp32. With few queries the twin may by chance have almost no rounding
// error, so a step of the terms is added.
double rules_sink_unit(const struct rules *r, const struct rules_sink *s);

// Accumulated over heads.
struct rules_sinks {
    int64_t heads, mismatches, nonfinite, te_mismatches;
    int64_t not_zero; // heads whose gradient would be refused if it were zero
    double error_squares, unit_squares, reference_squares, product, unit_products;
    double worst; // error in units
    double max_abs;
};

// Adds a head. Returns RULES_WORST if it is the worst so far, and RULES_FIRST_BAD if it is the
// first bad one.
enum { RULES_WORST = 1, RULES_FIRST_BAD = 2 };
int rules_sinks_add(const struct rules *r, struct rules_sinks *sums, const struct rules_sink *head,
                    double got);
void rules_sinks_finish(const struct rules *r, const struct rules_sinks *sums, struct figures *f);

#endif
