// SPDX-License-Identifier: Apache-2.0
// A JUnit report of a matrix. Only junit.c uses Mini-XML.
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
    const char *host; // from which the cases were submitted; NULL: unknown
    const struct junit_property *properties;
    int property_count;
};

// Writes the report: a fail is a failure, a case that could not run an error; an excluded or not
// submitted case is skipped, with the reason. False: memory is short or the stream failed.
bool junit_write(FILE *out, const struct junit_suite *suite);

#endif
