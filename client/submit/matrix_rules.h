// SPDX-License-Identifier: Apache-2.0
// The parts of a matrix file that are lists of conditions: set, exclude, subsets. Of matrix.c only.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_RULES_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_RULES_H

#include "client/submit/matrix.h"

// Reads them into a matrix whose names are there already.
enum status matrix_rules_read(struct matrix *m, const struct yaml_node *root,
                              struct error *error) MUST_CHECK;
void matrix_rules_fini(struct matrix *m);

// Sets the fields of a map of field to value in `c` and says in `mask` which.
enum status matrix_fields_apply(const struct yaml_node *map, struct cp_case *c, uint64_t *mask,
                                struct error *error) MUST_CHECK;

// Whether the key of a node may be a name. Names stand in ids between slashes, on the command line
// between commas, and beside patterns.
enum status matrix_check_name(const struct yaml_node *node, const char *what,
                              struct error *error) MUST_CHECK;

#endif
