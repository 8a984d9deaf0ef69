// SPDX-License-Identifier: Apache-2.0
// A summary of a matrix in Markdown, as the pages of CI systems show it.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_MARKDOWN_H
#define CPATTN_CLIENT_SUBMIT_WRITE_MARKDOWN_H

#include <stdio.h>

#include "client/submit/matrix/matrix_list.h"
#include "client/submit/outcome/outcome.h"

// Cases that did not pass, and flaky ones, are named up to this many.
#define MARKDOWN_ROWS_MAX 200

struct markdown_summary {
    const char *title;
    const char *sum; // "16 cases: 16 passed in 3.4 s"
    const struct matrix_list *list;
    const struct outcome *outcomes; // [list->count]
};

// Writes a heading, the sum, and a table of what did not pass or took another try. Text of the
// matrix file and of answers is escaped. False where the stream did not take it.
bool markdown_write(FILE *out, const struct markdown_summary *summary);

#endif
