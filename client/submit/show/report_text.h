// SPDX-License-Identifier: Apache-2.0
// A recorded run in a few lines of text: the totals, and what changed since an earlier run.
#ifndef CPATTN_CLIENT_SUBMIT_SHOW_REPORT_TEXT_H
#define CPATTN_CLIENT_SUBMIT_SHOW_REPORT_TEXT_H

#include <stdio.h>

#include "client/submit/outcome/changes.h"

#define REPORT_TEXT_NAMED_MAX 200 // changed cases that are named

// The totals in one line.
void report_text_totals(FILE *out, const struct record *run);

// Prints the cases whose verdict or bits changed, the numbers of new and gone cases, and the times
// relative to those of the earlier run.
void report_text_changes(FILE *out, const struct record *run, const struct record *earlier,
                         const char *earlier_name, const struct changes *changes);

#endif
