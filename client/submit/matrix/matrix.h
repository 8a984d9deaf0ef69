// SPDX-License-Identifier: Apache-2.0
// A matrix file as data: named models, axes, exclusions with reasons, subsets. The format is in
// cpattn-matrix(5); matrix_list.h builds its cases. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_MATRIX_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_MATRIX_H

#include "client/submit/matrix/filter.h"
#include "client/submit/matrix/matrix_fields.h"
#include "client/submit/matrix/matrix_rules.h"
#include "plan/kind.h"
#include "yaml/yaml.h"

#define MATRIX_AXES_MAX 16

// One value of an axis: its name in ids, and the fields it sets.
struct matrix_value {
    char label[MATRIX_LABEL_MAX];
    const struct yaml_node *fields; // map of field to value; NULL: only `field` is set
    const char *field;
    const struct yaml_node *node; // value of `field` in the file; NULL: `text`
    const char *text;             // value of `field` from --set
};

struct matrix_axis {
    const char *name;
    const struct yaml_node *bundles; // map of the named values; NULL: a list of values of one field
    uint64_t mask;                   // of the fields it sets (fields.h)
    struct matrix_value *values;
    int count;
};

// The YAML tree owns all texts.
struct matrix {
    struct yaml *yaml;
    const char *title;           // NULL: none given
    uint64_t timeout_ns;         // 0: none given
    const struct job_kind *kind; // of all jobs
    struct job_spec defaults;
    struct matrix_axis axes[MATRIX_AXES_MAX]; // the last one changes fastest
    int axis_count;
    struct condition_names names[MATRIX_AXES_MAX]; // of the bundle axes, in their order
    int name_count;
    struct matrix_rules rules;
};

// Takes over the tree, also on failure. INVALID_ARGUMENT with line and column for everything that
// the format does not allow.
enum status matrix_create(struct yaml *yaml, struct matrix **matrix,
                          struct error *error) MUST_CHECK;
void matrix_destroy(struct matrix *matrix); // accepts NULL and half-built objects

// Sets the fields of a value in a job. The values were tried when the file was read.
void matrix_value_apply(const struct matrix_value *value, struct job_spec *spec);

#endif
