// SPDX-License-Identifier: Apache-2.0
// A run of a matrix as one page of HTML that needs no network: verdicts, errors against their
// limits, times, and what changed since an earlier run.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_REPORT_PAGE_H
#define CPATTN_CLIENT_SUBMIT_WRITE_REPORT_PAGE_H

#include <stdio.h>

#include "client/submit/outcome/record.h"

#define REPORT_PAGE_NAMED_MAX 200 // cases that are shown with their sentences, per list
#define REPORT_PAGE_TOP       15  // rows of the lists of longest and closest cases

struct report_page {
    const char *name; // of the run
    const struct record *run;
    const char *earlier_name;     // NULL where there is no `earlier`
    const struct record *earlier; // NULL: nothing to compare with
};

// Writes the page; escapes texts of the records. False: the stream failed or memory is short.
bool report_page_write(FILE *out, const struct report_page *page);

#endif
