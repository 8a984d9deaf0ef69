// SPDX-License-Identifier: Apache-2.0
// A filter: conditions on a case, or another job, all of which must hold. The `when:` of a matrix
// file and the --filter of the command line. Pure.
//
// In a file it is a map of field to condition, a condition being a value, a list of values (any of
// them), a map of tests (min, max, multiple_of, field; all of them), a list of such maps and
// values, or {not: any of these}. On the command line it is KEY=VALUE[,VALUE...],
// KEY!=VALUE[,VALUE...], KEY<NUMBER, KEY<=NUMBER, KEY>NUMBER, KEY>=NUMBER or a shell pattern on the
// id of a case, or several of these with " or " between them, one of which must hold. A key may
// be a product of fields that are whole numbers, as "batch*heads", or a pair, as "seqlen", of which
// both members have to match. Of a text or a list (as "2794,3301") a value is a shell pattern; a
// list on the command line is one value with its commas.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_FILTER_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_FILTER_H

#include <stdbool.h>

#include "plan/kind.h"
#include "yaml/yaml.h"

#define FILTER_FACTORS_MAX 8 // of a product

// Named values that are no fields of a job: the models, and the axes whose values set several
// fields. Borrowed by the filters made with it.
struct filter_names {
    const char *name;
    const char *const *labels;
    int label_count;
};

// The input of a filter.
struct filter_subject {
    const struct job_spec *spec;
    const char *const *labels; // the case's label in each of the `names` the filter was made with
    const char *id;
};

struct filter_condition;
struct filter {
    const struct job_kind *kind; // of the jobs; set by the first condition
    struct filter_condition *conditions;
    int count;
};

// Adds the conditions of a map; texts of the tree are borrowed. INVALID_ARGUMENT with line and
// column for an unknown key, a value that the field does not take, a label that does not exist. The
// filter stays valid after a failure: filter_fini().
enum status filter_add_yaml(struct filter *filter, const struct job_kind *kind,
                            const struct yaml_node *map, const struct filter_names *names,
                            int name_count, struct error *error) MUST_CHECK;

// Adds the conditions of a text (copied).
enum status filter_add_text(struct filter *filter, const struct job_kind *kind, const char *text,
                            const struct filter_names *names, int name_count,
                            struct error *error) MUST_CHECK;

// True if all conditions hold, and for a filter without conditions.
bool filter_matches(const struct filter *filter, const struct filter_subject *subject);

void filter_fini(struct filter *filter);

#endif
