// SPDX-License-Identifier: Apache-2.0
// One chunk of a tensor being judged on the CPU, in the two passes of judge/rules.h: the first has
// the reference, the second only what the tensor holds, and the errors that the first has kept.
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
    float *errors; // [rows][dim]: got - reference; NaN where one is not finite
    float *twins;  // [rows]: rules_row_unit(); of LSE and largest logits what they may err by; -1
                   // where the row must be zero
    double refused_expected; // the first that is not finite
    int64_t rows;            // of the first pass
    int64_t next;            // of the second pass
};

// What a row is compared with.
struct tally_expected {
    const double *reference;
    const float *twin; // NULL: for LSE and largest logits
    double terms;      // RMS of what cancels in an element
    double row_terms;  // the same, where it is known of this row alone; else 0
    bool zero;         // it must be zero
    bool sparse;       // dbias: what reference and twin have as zero, no query with a key makes
    int64_t keys;      // LSE: that the query sees; else 0
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

// Completes the figures but for `elements`.
void tally_finish(struct tally *t);

#endif
