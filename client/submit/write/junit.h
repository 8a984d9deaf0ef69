// SPDX-License-Identifier: Apache-2.0
// A JUnit report of a matrix. The one place that knows libxml2.
#ifndef CPATTN_CLIENT_SUBMIT_WRITE_JUNIT_H
#define CPATTN_CLIENT_SUBMIT_WRITE_JUNIT_H

#include <stdio.h>

#include "client/submit/matrix/matrix_list.h"
#include "client/submit/outcome/outcome.h"

struct junit_property {
    const char *name, *value;
};

struct junit_suite {
    const char *name; // of the matrix
    const char *file; // the class of its cases
    const struct matrix_list *list;
    const struct outcome *outcomes; // [list->count]
    uint64_t elapsed_ns;
    const char *host; // that the cases were submitted from; NULL: not told
    const struct junit_property *properties;
    int property_count;
};

// Writes the report; a fail is a failure, what could not run is an error, what was excluded or not
// submitted is skipped with the reason. False when memory is short or the stream did not take it.
bool junit_write(FILE *out, const struct junit_suite *suite);

// A report on its way into a file, which appears under its name when it is complete, so that nobody
// reads half of one and an earlier one stays until then. What is no plain file, as a link, a pipe
// or a device, is written as it is.
struct junit_file {
    FILE *out;
    const char *path; // borrowed
    char *temporary;  // owned; beside `path`; NULL: `path` itself is written
};

// False where the file cannot be written; errno says why.
bool junit_open(struct junit_file *file, const char *path);

// Writes the report and puts the file in its place. False as junit_write(), or where the file could
// not be put there; errno says why. Ends the file in any case; nothing is left behind.
bool junit_commit(struct junit_file *file, const struct junit_suite *suite);

// Ends a file without a report; an earlier one stays. Nothing where it is ended already.
void junit_abandon(struct junit_file *file);

#endif
