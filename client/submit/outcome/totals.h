// SPDX-License-Identifier: Apache-2.0
// The outcomes of a run, counted, and as words.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_TOTALS_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_TOTALS_H

#include "client/submit/outcome/outcome.h"

#define TOTALS_TEXT_MAX 256

struct totals {
    int kinds[OUTCOME_KINDS];
    int flaky; // passed after another try
    int wrong; // flaky cases with a wrong result before the pass
};

void totals_add(struct totals *totals, const struct outcome *outcome);

// "3 passed, 1 of them flaky (1 with a wrong result first), 1 failed"; "" without cases. Kinds with
// a count of 0 are left out. Returns `text`, which has TOTALS_TEXT_MAX bytes.
const char *totals_format(const struct totals *totals, char *text);

#endif
