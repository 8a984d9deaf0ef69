// SPDX-License-Identifier: Apache-2.0
// Fields of a case in a matrix file, and the names that a file may define. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_MATRIX_FIELDS_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_MATRIX_FIELDS_H

#include "plan/kind.h"
#include "yaml/yaml.h"

#define MATRIX_LABEL_MAX 64 // with its NUL

// Returns INVALID_ARGUMENT with the message that `name`, the key of a node, is no field of the
// kind; suggests the nearest field.
enum status matrix_unknown_field(const struct yaml_node *node, const struct job_kind *kind,
                                 const char *name, struct error *error) MUST_CHECK;

// Sets the field `name`, which may stand for a pair, to the value of a node.
enum status matrix_field_apply(const struct yaml_node *node, const char *name,
                               struct job_spec *spec, struct error *error) MUST_CHECK;

// Sets the fields of a map of field to value in `spec`, and their bits in `mask`.
enum status matrix_fields_apply(const struct yaml_node *map, struct job_spec *spec, uint64_t *mask,
                                struct error *error) MUST_CHECK;

// Checks that the key of a node is a valid name. Names appear between slashes in ids, between
// commas on the command line, and beside patterns.
enum status matrix_check_name(const struct yaml_node *node, const char *what,
                              struct error *error) MUST_CHECK;

#endif
