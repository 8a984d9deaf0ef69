// SPDX-License-Identifier: Apache-2.0
// The verdicts of a matrix for people: a row for each case or, if there are many, for each value of
// the first axis, and the axes whose values separate failures from passes; failures in full; the
// sum.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_MATRIX_REPORT_H
#define CPATTN_CLIENT_SUBMIT_SHOW_MATRIX_REPORT_H

#include <stdio.h>

#include "client/submit/matrix/matrix_list.h"
#include "client/submit/outcome/outcome.h"
#include "client/submit/outcome/totals.h"
#include "common/duration.h"

// Up to this many cases have a row each.
#define MATRIX_REPORT_ROWS_MAX     40
// Up to this many failures are shown in full.
#define MATRIX_REPORT_FAILURES_MAX 10

struct matrix_report {
    const struct matrix_list *list;
    const struct outcome *outcomes; // [list->count]
    uint64_t elapsed_ns;
    int recorded;  // cases with a verdict of the earlier run that this one resumes
    int durations; // how many of the longest cases are named; 0: none
    bool verbose;  // without the bounds above
};

void matrix_report_print(FILE *out, const struct matrix_report *report);

// "16 cases: 16 passed in 3.4 s; 9 of them recorded before". No sum is longer than the text.
#define MATRIX_REPORT_SUM_MAX (TOTALS_TEXT_MAX + DURATION_TEXT_MAX + 72)
void matrix_report_sum(const struct matrix_report *report, char text[MATRIX_REPORT_SUM_MAX]);

#endif
