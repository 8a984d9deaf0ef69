// SPDX-License-Identifier: Apache-2.0
// Fields of a case by name, with two names more that set a pair of them: `seqlen` (seqlen_q and
// seqlen_kv) and `head_dim` (head_dim_qk and head_dim_v). Pure.
#ifndef CPATTN_CLIENT_SUBMIT_FIELDS_H
#define CPATTN_CLIENT_SUBMIT_FIELDS_H

#include "plan/case.h"

#define FIELDS_PAIR 2

struct fields_pair {
    const char *name;
    const char *members[FIELDS_PAIR];
    const char *help;
};

// The pairs; ends with a NULL name.
const struct fields_pair *fields_pairs(void);

// Sets the field or fields that `name` stands for, as case_set() does.
enum status fields_set(struct cp_case *c, const char *name, const char *value,
                       struct error *error) MUST_CHECK;

// The fields that `name` stands for as bits by their place in case_fields(); 0: unknown.
uint64_t fields_mask(const char *name);

// Name of the field with the lowest bit of a mask that is not 0.
const char *fields_first(uint64_t mask);

// How a value is called in the id of a case: the value where it is a word ("bf16"), with a short
// letter where it is a number ("w2", "s4096"), with the field's name otherwise ("training=true").
// `c` holds the value. Returns the length as snprintf does.
int fields_label(const struct cp_case *c, const char *name, char *text, size_t size);

#endif
