// SPDX-License-Identifier: Apache-2.0
// Fields of a job by name, and jobs that are put together field by field. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_FIELDS_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_FIELDS_H

#include "plan/kind.h"

// kv_heads of a case that is being put together and has not been given them: they follow heads.
#define FIELDS_FOLLOW 0

// A spec as job_spec_init() makes it, but that kv_heads follow heads.
void fields_init(struct job_spec *spec, const struct job_kind *kind);

// Gives kv_heads their number where nobody has, and fills what follows from other fields.
void fields_finish(struct job_spec *spec);

// The same of cases alone.
void fields_case_init(struct cp_case *c);
void fields_case_finish(struct cp_case *c);

// The fields that `name`, a field or a pair, stands for as bits by their place among the fields of
// the kind; 0: unknown.
uint64_t fields_mask(const struct job_kind *kind, const char *name);

// Name of the field with the lowest bit of a mask that is not 0.
const char *fields_first(const struct job_kind *kind, uint64_t mask);

// How a value is called in the id of a job: the value where it is a word ("bf16"), with a short
// letter where it is a number ("w2", "s4096"), with the field's name otherwise ("training=true").
// `spec` holds the value. Returns the length as snprintf does.
int fields_label(const struct job_spec *spec, const char *name, char *text, size_t size);

#endif
