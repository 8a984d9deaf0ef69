// SPDX-License-Identifier: Apache-2.0
// A summary of a matrix in Markdown, for the pages of CI systems.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_MARKDOWN_H
#define CPATTN_CLIENT_SUBMIT_WRITE_MARKDOWN_H

#include <stdio.h>

#include "client/submit/matrix/matrix_list.h"
#include "client/submit/outcome/outcome.h"

// Maximum number of listed cases.
#define MARKDOWN_ROWS_MAX 200

struct markdown_summary {
    const char *title;
    const char *sum; // "16 cases: 16 passed in 3.4 s"
    const struct matrix_list *list;
    const struct outcome *outcomes; // [list->count]
};

// Writes a heading, the sum, and a table of the cases that did not pass or needed another try.
// Escapes texts of matrix file and answers. False: the stream failed.
bool markdown_write(FILE *out, const struct markdown_summary *summary);

#endif
