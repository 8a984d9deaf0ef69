// SPDX-License-Identifier: Apache-2.0
// The error figures of one tensor in one chunk of a rank, and the rules that judge them.
//
// A row is the vector of one token and one head. Four rules, and a case passes only if all hold:
//
// - Element: |got - expected| <= t * max(1, u, RMS of the expected row) + t * |got| with
//   TransformerEngine's tolerances as t, so that verdicts compare: its inputs keep all rows and u,
//   see below, under 1, where this is its rule to the letter. The sharp inputs make larger
//   gradients, whose small elements carry the rounding errors of the large ones beside them.
// - RMSE: RMS of the error of the chunk / RMS of the reference of the chunk.
// - Row: the same of a single row, for errors that a few rows have and an average hides.
// - Nonfinite: no NaN or infinity where the reference is finite.
//
// Gradients can be (nearly) zero by cancellation: with a single visible key dQ is zero whatever the
// inputs are, and next to nothing where a softmax has saturated. What is left in such a place is
// the rounding error of the terms that cancelled, and dividing by its reference would say nothing.
// So a chunk is measured against at least half of u, the RMS that a uniform softmax would give with
// this mask, and a row against at least a quarter of its chunk; u is never less than what the dtype
// can hold to within the limits. Limits are wider where an RMS is taken over few elements, and
// where a scale of the case's own makes the logits so large that fp32, which they are in, no longer
// tells them apart as well as that (plan/support.c refuses where nothing would be left of them).
//
// Cancellation hides rounding errors of the other kind, too. Any kernel on matrix units rounds P to
// the dtype before it multiplies by it: O, and delta = dO.O, are off by up to eps of the terms that
// make them up, and so is each dS = P (dP - delta), however well its two terms cancel. In a row
// whose softmax rests on one or two keys they do. The reference therefore tells the RMS of a row's
// terms (judge/cpu/reference.h), times the deviation of the K or Q that they are multiplied
// by. An element may err by eight eps of them: one for the error, twice or three times as much
// where several add up, the rest for how far inputs deviate (more where a head has few dims). A row
// is measured against so much that three eps of them exhaust its limit, a chunk so that three eps
// of their RMS do. Where the softmax is spread this is far below the row itself and changes
// nothing. The gradient of the bias is dS itself, a sum of it where queries, heads or sequences
// share an element: with logits that deviate as much as those of sharp inputs its elements and rows
// may err by nine eps of as many terms of random sign with the RMS of dP.
//
// The gradients of bias and sinks are sums over many queries; their u is the RMS of a sum of as
// many terms of random sign. Each is one chunk. Rows of the bias belong to queries of either chunk
// of the rank, or to all queries, so there is nothing to cut it at; what is wrong in a few rows
// does not hide in the average, because every row has to keep its rule, and the place of the worst
// one tells the chunk. The gradients of sinks are judged in units of their own head's u
// (judge/sums.c), since sinks differ by orders of magnitude in what they weigh.
//
// The sequences of a batch share a chunk, and with it what rows are measured against at least. A
// row is measured against itself unless it is less than a quarter of its chunk. Sharp inputs give
// sequences of some tokens and of thousands results of one size (tests/test_reference.c), so each
// is judged by its own. With TransformerEngine's inputs results shrink with the root of the length:
// beside short sequences, an error in a long one shows as little as in TransformerEngine's tests.
//
// LSE is a logarithm, its absolute error the relative error of the sum that it stands for: its
// figures are absolute. A row that sees nothing must have LSE = -inf exactly. So it is with the
// largest logit.
#ifndef CPATTN_JUDGE_FIGURES_H
#define CPATTN_JUDGE_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/report.h"
#include "plan/shard.h"

struct figures_rule {
    double tolerance;  // of an element, absolute and relative
    double rmse_limit; // of a chunk
    double row_limit;  // of a row
    double uniform;    // RMS of the chunk under a uniform softmax
    // Times a row's terms, for the chunk times their RMS: what elements, the row and the chunk are
    // measured against at least.
    double terms_element, terms_row, terms_chunk;
    bool absolute; // errors are taken as they are (LSE, largest logit)
};

// The rule for a chunk, 0 or 1: those of the spans (of the tensor's side) that belong to it. Its u
// is the RMS over all of them.
struct figures_rule figures_rule(const struct cp_case *c, enum report_tensor tensor,
                                 const struct span *spans, int count, int chunk);

// The rule for a tensor that is summed up over queries: `uniform` is its u, `elements` are those of
// the tensor, `row` those of one row.
struct figures_rule figures_rule_sums(const struct cp_case *c, enum report_tensor tensor,
                                      double uniform, int64_t elements, int64_t row);

// Sum of the squares of one head's dS, over the queries of a span, under a uniform softmax.
double figures_uniform_logits(const struct cp_case *c, const struct span *span);

// What errors are measured against at least.
struct figures_floors {
    double element; // the RMS of an element's row
    double chunk;   // the RMS of a chunk
    double row;     // the RMS of a row, as a part of what its chunk is measured against
};
struct figures_floors figures_floors(const struct figures_rule *rule);

// The figures of a chunk before anything is known of it.
struct figures figures_init(const struct figures_rule *rule, enum report_tensor tensor, int chunk);

// Sums over the elements of a chunk, and its worst row's error, measured.
struct figures_sums {
    double error_squares, expected_squares, terms_squares;
    double worst_row;
};

// Completes figures whose counts are there, but for worst_row: the figures of the sums and which
// rules are broken.
void figures_finish(struct figures *f, const struct figures_rule *rule,
                    const struct figures_sums *sums);

// RMS of the error of one row, and what it is measured against if the chunk asks for no more.
struct row_error {
    float error, expected;
};

// One chunk being judged, row by row.
struct figures_tally {
    struct figures figures; // complete after figures_tally_finish()
    struct figures_rule rule;
    struct row_error *rows;
    int64_t row_count;
    struct figures_sums sums;
};

// Starts a chunk of `row_count` rows. `rows` is room for as many, borrowed until
// figures_tally_finish().
void figures_tally_init(struct figures_tally *t, struct figures_rule rule,
                        enum report_tensor tensor, int chunk, struct row_error *rows,
                        int64_t row_count);

// Judges row `index` of the chunk, which begins at `where` of the global tensor. Rows may
// come in any order; the first bad element is the first that was met. `terms`: those of the row, 0
// where nothing cancels, 1 for the gradient of the bias, and for that of a sink, which comes in
// units, as many of them as 1 has.
void figures_tally_row(struct figures_tally *t, int64_t index, struct element where,
                       const float *got, const double *expected, int count, double terms);

// Completes the figures but for worst_row, which the caller derives from the index of the worst row
// that is returned; -1 when there was no row.
int64_t figures_tally_finish(struct figures_tally *t);

#endif
