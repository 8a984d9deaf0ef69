// SPDX-License-Identifier: Apache-2.0
// A filter from a matrix file. It is a map of field to condition. A condition is a value, a list of
// values (any of them), a map of tests (min, max, multiple_of, field; all of them), a list of such
// maps and values, or {not: any of these}. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_FILTER_YAML_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_FILTER_YAML_H

#include "client/submit/matrix/filter.h"
#include "yaml/yaml.h"

// Adds the conditions of a map; texts of the tree are borrowed. INVALID_ARGUMENT with line and
// column for an unknown key, a value that the field does not take, a label that does not exist. The
// filter stays valid after a failure: filter_fini().
enum status filter_add_yaml(struct filter *filter, const struct job_kind *kind,
                            const struct yaml_node *map, const struct condition_names *names,
                            int name_count, struct error *error) MUST_CHECK;

#endif
