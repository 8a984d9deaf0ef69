// SPDX-License-Identifier: Apache-2.0
// Judges one chunk of a tensor on the CPU, in the two passes of judge/rules.h. The first pass uses
// the reference; the second uses the tensor and the errors that the first has stored.
#ifndef CPATTN_JUDGE_TALLY_H
#define CPATTN_JUDGE_TALLY_H

#include "judge/rules.h"

struct tally {
    struct figures figures; // complete after tally_finish()
    struct rules rules;
    struct rules_sums sums;
    struct rules_units units;
    struct rules_worst worst;
    int dim;
    // [rows][dim]: got - reference; NaN where a number that is not finite is refused.
    float *errors;
    // [rows]: rules_row_unit(); for LSE and largest logits the limit of the error; -1: the row must
    // be zero.
    float *twins;
    double refused_expected; // expected value of the first such number
    int64_t rows;            // number of rows in the first pass
    int64_t next;            // next row of the second pass
};

// The expected row.
struct tally_expected {
    const double *reference;
    const float *twin; // NULL: for LSE and largest logits
    double terms;      // RMS of the terms that cancel in an element
    double row_terms;  // the same RMS for this row only, if known; else 0
    bool zero;         // the row must be zero
    bool sparse;       // dbias: elements that are zero in reference and twin have no visible pair
    int64_t keys;      // LSE: number of keys that the query sees; else 0
};

// Starts a chunk of rows of `dim` elements. errors and twins are room for all its rows, borrowed
// until tally_finish().
void tally_init(struct tally *t, struct rules rules, enum report_tensor tensor, int chunk, int dim,
                float *errors, float *twins);

// The first pass, row by row. A row may be cut short by `count` (dbias).
void tally_row(struct tally *t, const float *got, const struct tally_expected *expected, int count);

// Between the passes.
void tally_turn(struct tally *t);

// The second pass: the same rows in the same order, with their places in the global tensor.
void tally_row_again(struct tally *t, const float *got, struct element where, int count);

// Completes the figures except `elements`.
void tally_finish(struct tally *t);

#endif
