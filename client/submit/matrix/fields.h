// SPDX-License-Identifier: Apache-2.0
// Fields of a job by name, and jobs that are set up field by field. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_FIELDS_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_FIELDS_H

#include "plan/kind.h"

// Value of kv_heads while a case is set up and kv_heads is not set: fields_finish() makes it equal
// to heads.
#define FIELDS_FOLLOW 0

// Initializes a spec like job_spec_init(), but with kv_heads equal to heads until it is set.
void fields_init(struct job_spec *spec, const struct job_kind *kind);

// Sets kv_heads if it has no value, and the fields that follow from others.
void fields_finish(struct job_spec *spec);

// The same for cases.
void fields_case_init(struct cp_case *c);
void fields_case_finish(struct cp_case *c);

// Returns the bit mask of the fields that `name`, a field or a pair, sets: bit i is the kind's
// field i. 0: unknown name.
uint64_t fields_mask(const struct job_kind *kind, const char *name);

// Name of the field with the lowest bit of a mask, which is not 0.
const char *fields_first(const struct job_kind *kind, uint64_t mask);

// Writes the part of a job's id for a field of `spec`: the value if it is a word ("bf16"), with a
// letter before it if it is a number ("w2", "s4096"), with the field's name otherwise
// ("training=true"). Returns the length like snprintf().
int fields_label(const struct job_spec *spec, const char *name, char *text, size_t size);

#endif
