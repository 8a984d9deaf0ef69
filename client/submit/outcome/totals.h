// SPDX-License-Identifier: Apache-2.0
// The outcomes of a run, counted, and as words.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_TOTALS_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_TOTALS_H

#include "client/submit/outcome/outcome.h"

#define TOTALS_TEXT_MAX 256

struct totals {
    int kinds[OUTCOME_KINDS];
    int flaky; // passes after another try
    int wrong; // those whose first result was wrong
};

void totals_add(struct totals *totals, const struct outcome *outcome);

// "3 passed, 1 failed, 1 of them flaky (1 with a wrong result first)"; "" without cases. A kind
// that is to be left out has a count of 0. Gives `text`, which has room for TOTALS_TEXT_MAX bytes.
const char *totals_format(const struct totals *totals, char *text);

#endif
