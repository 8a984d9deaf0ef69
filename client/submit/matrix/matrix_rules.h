// SPDX-License-Identifier: Apache-2.0
// The parts of a matrix file that are lists of conditions: set, exclude, subsets. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_MATRIX_RULES_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_MATRIX_RULES_H

#include "client/submit/matrix/filter.h"
#include "plan/kind.h"
#include "yaml/yaml.h"

// Sets fields of the cases for which all conditions hold.
struct matrix_change {
    struct filter when;
    const struct yaml_node *fields; // a map of field to value
};

// Why a combination is not run.
enum matrix_kind {
    KIND_UNSAID,      // the file does not say
    KIND_BACKEND,     // the implementation that the case was written for does not support it
    KIND_DUPLICATE,   // another combination is the same case
    KIND_MEANINGLESS, // its fields contradict each other
};

struct matrix_rule {
    struct filter when;
    const char *reason;
    enum matrix_kind kind;
};

// A case belongs to a subset when one of its filters matches.
struct matrix_subset {
    const char *name;
    struct filter *filters;
    int count;
};

// Texts belong to the tree.
struct matrix_rules {
    struct matrix_change *changes; // in their order
    int change_count;
    struct matrix_rule *rules; // the first that matches gives the reason
    int rule_count;
    struct matrix_subset *subsets;
    int subset_count;
};

// Names that the conditions of a file may use, and the job on which its fields are tried. Borrowed.
struct matrix_scope {
    const struct job_kind *kind;
    const struct condition_names *names;
    int name_count;
    const struct job_spec *defaults;
};

// Reads the rules into a zeroed struct. Call matrix_rules_fini() also on failure.
enum status matrix_rules_read(struct matrix_rules *rules, const struct yaml_node *root,
                              const struct matrix_scope *scope, struct error *error) MUST_CHECK;
void matrix_rules_fini(struct matrix_rules *rules);

#endif
