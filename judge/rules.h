// SPDX-License-Identifier: Apache-2.0
// The rules of a verdict. Each chunk of a tensor on a rank is compared with the reference and with
// the twin, an honest kernel in high precision (judge/cpu/expected.h). A row is one token's vector
// of one head. Limits are those of bf16 and fp16, in brackets those of fp32.
//
// - unit: the RMS error of the twin; at least half of what rounding the reference to the dtype
//   makes [5 steps], 2^-22 of the RMS of terms that cancel (fp32, head_dim_v 1 or 2, out and dv: of
//   1), and a fifth of a step of these, times 4 / n where that is less. n is the number of rows
//   that make the twin's error. Means are over rows that see something. Few rows say little: all
//   limits are wider by 1 + 6 / sqrt(n).
// - rms: RMS error <= 1.5 [2.5] units, wider by 1 + 100 / n where that is less.
// - slope: |<error, reference>| / <reference, reference> <= 3e-4, fp16 1e-4 [3e-6], + 3 deviations
//   of what the twin's rows add to it, taken for random. It shows a scale that is off.
// - row: RMS error of a row <= 20 [16] times the twin's there, the unit, or 3/100 [1 1/2] of a step
//   of the row's terms that cancel, whichever is most.
// - element: error <= 4 [5] times the twin's largest in the chunk or 4 units, or steps of the dtype
//   at the element.
// - zero: what belongs to a query that sees no key, or a key that no query sees, is exactly zero.
// - nonfinite: finite where the reference is, else the same infinity. Padding is exactly zero.
//
// - long sums: the fp32 sums of matrix units cut off what is below their last bit, which makes long
//   ones smaller by some 2^-30 for each term. With bf16 and fp16 rms and slope may be off by 2^-29
//   more for each term of the longest sum (rules_longest_sum()), with a remark.
//
// LSE and largest logits, fp32 always: error <= 2^-24 * (128 + 8 |value| + 4 min(softcap, 256)) *
// (deviation of the logits / 4) * sqrt(head_dim_qk / 64), factors at least 1, * (1 + what all
// logits are lowered by (plan/weight.h) / 8). LSE has 2^-30 more for each key, with a remark: long
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
    double step;                     // between neighbours at 1 in the dtype of the tensor
    double least;                    // between neighbours around 0
    double rounding;                 // of a step, at least: the unit
    double narrow;                   // step in the dtype of the case
    double noise;                    // the unit, at least
    double te;                       // TransformerEngine's atol and rtol; 0: it has no rule
    double excess;                   // of the logits and their errors, >= 1
    double cap;                      // the softcap, 256 at most: tanh may err by its last bit at 1
    double long_sum;                 // what a long sum may be off by, of the reference
    bool absolute;                   // LSE and largest logits
};
struct rules rules_of(const struct cp_case *c, enum report_tensor tensor);

// Terms that the longest sum over keys (out, dq) or over queries (dk, dv) of the case may have: the
// most that its lengths and its window let a query see, or be seen by. 0 for other tensors.
int64_t rules_longest_sum(const struct cp_case *c, enum report_tensor tensor);

// Whether the logits of a case with a 16-bit dtype are so large that fp32 does not hold them well
// enough for a reference: it has to be made in fp64 then.
bool rules_want_fp64(const struct cp_case *c);

// ---- the first pass ---------------------------------------------------------------------------

// Sums over the elements of a chunk that are judged. Elements of which got or reference is not
// finite are in the counts only.
struct rules_sums {
    int64_t elements, rows;
    int64_t empty;         // elements that no query with a key makes
    int64_t nonfinite;     // see the rule
    int64_t zeros;         // elements that must be zero and are not, in the other sums, too
    int64_t te_mismatches; // rules_te()
    int64_t long_sums;     // LSE: within the limit for its keys only
    double error_squares, twin_squares, reference_squares, terms_squares;
    double product;                     // error * reference
    double twin_product_squares;        // of rows: (twin - reference) * reference, squared
    double twin_fourths;                // of rows: squares of the sums that twin_squares adds up
    double admitted_squares;            // LSE and largest logits: rules_logarithm()
    double error_largest, twin_largest; // absolute
};

// TransformerEngine's rule for an element, to the letter. True also where it has none.
RULES_INLINE bool rules_te(const struct rules *r, double got, double reference)
{
    return r->te == 0 || fabs(got - reference) <= r->te + r->te * fabs(got);
}

// What the error of a LSE or a largest logit may be, without the term of the keys, and that term.
RULES_INLINE double rules_logarithm(const struct rules *r, double reference)
{
    return 0x1p-24 * (128 + 8 * fabs(reference) + 4 * r->cap) * r->excess;
}

RULES_INLINE double rules_logarithm_keys(int64_t keys)
{
    return 0x1p-30 * (double)keys;
}

// ---- the second pass --------------------------------------------------------------------------

// Rows that make the twin's error: fewer than there are where some err much more than others.
RULES_INLINE double rules_rows(const struct rules_sums *s)
{
    double rows = s->rows > 1 ? (double)s->rows : 1;
    if (!(s->twin_fourths > 0))
        return rows;
    return fmax(1.0, fmin(rows, s->twin_squares * s->twin_squares / s->twin_fourths));
}

// The less a mean is over, the less it says: limits are wider by this.
RULES_INLINE double rules_allowance(const struct rules_sums *s)
{
    return 1 + 6 / sqrt(rules_rows(s));
}

// Elements that say something: those that some query with a key makes. At least 1.
RULES_INLINE double rules_elements(const struct rules_sums *s)
{
    return s->elements > s->empty ? (double)(s->elements - s->empty) : 1;
}

// So many rows or queries, or fewer, may round to next to nothing.
#define RULES_ROWS_FEW 4.0

// What follows from the sums of a whole chunk.
struct rules_units {
    double rms;     // the unit
    double element; // what an element may err by at least: the limit times the twin's largest, or 4
                    // units
};

RULES_INLINE struct rules_units rules_units(const struct rules *r, const struct rules_sums *s)
{
    double n = rules_elements(s);
    double rounding = r->rounding * (r->step * sqrt(s->reference_squares / n) + r->least);
    double unit = fmax(sqrt(s->twin_squares / n), rounding);
    double terms = sqrt(s->terms_squares / n);
    // In few rows the twin may have met next to no rounding by chance.
    double chance = 0.2 * fmin(1.0, RULES_ROWS_FEW / rules_rows(s)) * r->step * terms;
    unit = fmax(fmax(fmax(unit, r->noise), 0x1p-22 * terms), chance);
    double allowance = r->element * rules_allowance(s);
    struct rules_units units = {unit, allowance * fmax(s->twin_largest, 4 * unit)};
    return units;
}

// What the error of a row is measured by where that is more than the unit: the RMS error of the
// twin there, or what rounding makes of the terms that cancel in an element. The twin may have met
// little of that in one row by chance.
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

// The error of an element as a part of what it may be; more than 1 is a mismatch. LSE and largest
// logits are divided by what rules_logarithm() says instead.
RULES_INLINE double rules_element(const struct rules *r, const struct rules_units *u, double error,
                                  double got)
{
    double steps = r->element * (r->step * fabs(got) + r->least);
    return fabs(error) / fmax(u->element, steps);
}

// The worst of a chunk. Elements that the rules zero and nonfinite refuse are mismatches, too, and
// are left out of `element`.
struct rules_worst {
    double row, element; // rules_row(), rules_element()
    int64_t mismatches;
};

// ---- the end ----------------------------------------------------------------------------------

// Fills what the sums and the worst tell, and which rules are broken: all of the figures but
// tensor, chunk, elements (judged is filled), the worst row's place and the first bad element.
// Pure.
void rules_finish(const struct rules *r, const struct rules_sums *s, const struct rules_worst *w,
                  struct figures *f);

// ---- the gradients of sinks -------------------------------------------------------------------

// Sums over all queries of a head, all ranks. A term is -p_sink * delta; the twin's has its delta.
struct rules_sink {
    double reference;    // of the terms
    double twin_squares; // (twin's term - term)^2
    double term_squares;
    int64_t queries;
};

// The unit that a head's gradient is measured in: what the twin's deltas make of a sum of random
// signs, and the noise of a sum in fp32. With so few queries that the twin may have met next to no
// rounding by chance, a step of the terms, too.
double rules_sink_unit(const struct rules *r, const struct rules_sink *s);

// Over heads, one after the other.
struct rules_sinks {
    int64_t heads, mismatches, nonfinite, te_mismatches;
    double error_squares, unit_squares, reference_squares, product, unit_products;
    double worst; // error in units
    double max_abs;
};

// Adds a head. Returns whether it is the worst so far (RULES_WORST), and whether it is the first
// bad one (RULES_FIRST_BAD).
enum { RULES_WORST = 1, RULES_FIRST_BAD = 2 };
int rules_sinks_add(const struct rules *r, struct rules_sinks *sums, const struct rules_sink *head,
                    double got);
void rules_sinks_finish(const struct rules *r, const struct rules_sinks *sums, struct figures *f);

#endif
