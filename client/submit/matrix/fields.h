// SPDX-License-Identifier: Apache-2.0
// Fields of a job by name, and jobs that are set up field by field. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_FIELDS_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_FIELDS_H

#include "plan/kind.h"

// kv_heads of a case that is being set up, while it has no value of its own: it then equals heads.
#define FIELDS_FOLLOW 0

// Initializes a spec like job_spec_init(), but with kv_heads equal to heads until it is set.
void fields_init(struct job_spec *spec, const struct job_kind *kind);

// Sets kv_heads if it has no value, and the fields that follow from others.
void fields_finish(struct job_spec *spec);

// The same for cases.
void fields_case_init(struct cp_case *c);
void fields_case_finish(struct cp_case *c);

// Bits of the fields that `name`, a field or a pair, stands for, by their index among the fields of
// the kind; 0: unknown.
uint64_t fields_mask(const struct job_kind *kind, const char *name);

// Name of the field with the lowest bit of a mask, which is not 0.
const char *fields_first(const struct job_kind *kind, uint64_t mask);

// Writes the part of a job's id for a field of `spec`: the value if it is a word ("bf16"), with a
// letter before it if it is a number ("w2", "s4096"), with the field's name otherwise
// ("training=true"). Returns the length like snprintf().
int fields_label(const struct job_spec *spec, const char *name, char *text, size_t size);

#endif
