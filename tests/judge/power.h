// SPDX-License-Identifier: Apache-2.0
// Which errors a verdict notices. The case has 512 tokens, 4 heads of 64, no mask and one rank.
// Each tensor is judged alone, by its own rules.
#ifndef CPATTN_TESTS_JUDGE_POWER_H
#define CPATTN_TESTS_JUDGE_POWER_H

#include "common/report.h"
#include "plan/case.h"

enum {
    POWER_LENGTH = 512,
    POWER_HEADS = 4,
    POWER_DIM = 64,
    POWER_ROWS = POWER_LENGTH * POWER_HEADS,
    POWER_COUNT = POWER_ROWS * POWER_DIM,
    POWER_PAIRS = POWER_ROWS * POWER_LENGTH,
    POWER_TENSORS = 4,
};

// A tensor of all heads, [head][token][dim].
struct power_tensor {
    enum report_tensor name;
    double *reference;
    float *twin;
    double *terms; // of a row: RMS of the cancelling terms of an element; NULL: none
};

struct power {
    struct cp_case c;
    struct power_tensor tensors[POWER_TENSORS]; // out, dq, dk, dv
    float *errors, *twins;                      // scratch of the tally
    char *memory;
};

// Computes the reference. False if memory is short.
bool power_init(struct power *p, enum case_dtype dtype, enum case_inputs inputs);
void power_fini(struct power *p);

// Computes attention without the pairs of left_out[head][query][key], in fp64, and rounds it to the
// dtype: results [tensor][POWER_COUNT]. False if memory is short.
bool power_leave_out(const struct power *p, const bool *left_out, float *results);

// The figures of a tensor with these elements.
struct figures power_judge(struct power *p, int tensor, const float *got);

#endif
