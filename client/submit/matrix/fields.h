// SPDX-License-Identifier: Apache-2.0
// Fields of a case by name, and cases that are put together field by field. Pure.
#ifndef CPATTN_CLIENT_SUBMIT_MATRIX_FIELDS_H
#define CPATTN_CLIENT_SUBMIT_MATRIX_FIELDS_H

#include "plan/case.h"

// kv_heads of a case that is being put together and has not been given them: they follow heads.
#define FIELDS_FOLLOW 0

// A case as case_init() makes it, but that kv_heads follow heads.
void fields_init(struct cp_case *c);

// Gives kv_heads their number where nobody has.
void fields_finish(struct cp_case *c);

// The fields that `name`, a field or a pair, stands for as bits by their place in case_fields(); 0:
// unknown.
uint64_t fields_mask(const char *name);

// Name of the field with the lowest bit of a mask that is not 0.
const char *fields_first(uint64_t mask);

// How a value is called in the id of a case: the value where it is a word ("bf16"), with a short
// letter where it is a number ("w2", "s4096"), with the field's name otherwise ("training=true").
// `c` holds the value. Returns the length as snprintf does.
int fields_label(const struct cp_case *c, const char *name, char *text, size_t size);

#endif
