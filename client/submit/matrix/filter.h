// SPDX-License-Identifier: Apache-2.0
// A filter: conditions on a case or another job. All must hold. The `when:` of a matrix file
// (filter_yaml.h) and the --filter of the command line. Pure.
//
// On the command line it is KEY=VALUE[,VALUE...], KEY!=VALUE[,VALUE...], KEY<NUMBER, KEY<=NUMBER,
// KEY>NUMBER, KEY>=NUMBER or a shell pattern on the id of a case, or several of these with " or "
// between them, one of which must hold. A key may be a product of integer fields, such as
// "batch*heads", or a pair, such as "seqlen", both members of which must match. The value of a text
// or list field is a shell pattern; on the command line a list ("2794,3301") is one value with its
// commas.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_FILTER_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_FILTER_H

#include <stdbool.h>

#include "client/submit/matrix/condition.h"

struct filter {
    const struct job_kind *kind; // of the jobs; set by the first condition
    struct condition *conditions;
    int count;
};

// Adds the conditions of a text (copied). INVALID_ARGUMENT for an unknown key, a value that the
// field does not take, a label that does not exist. The filter stays valid after a failure:
// filter_fini().
enum status filter_add_text(struct filter *filter, const struct job_kind *kind, const char *text,
                            const struct condition_names *names, int name_count,
                            struct error *error) MUST_CHECK;

// Adds a condition without tests and returns it, to be filled in; NULL: out of memory.
struct condition *filter_add_condition(struct filter *filter, struct error *error) MUST_CHECK;

// True if all conditions hold, and for a filter without conditions.
bool filter_matches(const struct filter *filter, const struct condition_subject *subject);

void filter_fini(struct filter *filter);

#endif
