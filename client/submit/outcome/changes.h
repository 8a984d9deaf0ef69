// SPDX-License-Identifier: Apache-2.0
// What changed between two recorded runs. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_OUTCOME_CHANGES_H
#define CPATTN_CLIENT_SUBMIT_OUTCOME_CHANGES_H

#include <stdbool.h>

#include "client/submit/outcome/record.h"

struct changes {
    int same, changed; // verdicts of the cases of both runs
    int fresh, gone;   // cases of the later run alone, of the earlier run alone
    int worse;         // good in the earlier run, a fail or an error or not run in the later one
    int digests;       // cases whose results have other bits
    int timed;
    double *ratios; // owned: the times of cases that passed in both runs, later / earlier, sorted
};

// Compares the runs. RESOURCE_EXHAUSTED: out of memory.
enum status changes_init(struct changes *changes, const struct record *run,
                         const struct record *earlier) MUST_CHECK;
void changes_fini(struct changes *changes);

// True if both have results, and these have other bits.
bool changes_has_other_bits(const struct record_entry *now, const struct record_entry *then);

// True if `then` was good, and `now` is a fail or an error or was not run.
bool changes_is_worse(const struct record_entry *now, const struct record_entry *then);

#endif
