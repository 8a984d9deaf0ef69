// SPDX-License-Identifier: Apache-2.0
// Plain structs whose members are set, checked and printed by their names, as a table of
// struct case_field (plan/case.h) has them. A case is one, and so is what any other kind of job
// asks for. A table ends with a NULL name. FIELD_LIST is for cases alone.
#ifndef CPATTN_PLAN_MEMBERS_H
#define CPATTN_PLAN_MEMBERS_H

#include "common/nearest.h"
#include "plan/case.h"

// Rows of a table: MEMBER_INT(struct sum_spec, count, 0, 100, "elements of each rank").
#define MEMBER_FIELD(type, member, field_kind, ...)                                                \
    {                                                                                              \
        .name = #member, .kind = field_kind, .offset = offsetof(type, member),                     \
        .size = sizeof(((type *)NULL)->member), __VA_ARGS__                                        \
    }
#define MEMBER_INT(type, member, low, high, text)                                                  \
    MEMBER_FIELD(type, member, FIELD_INT, .min = low, .max = high, .help = text)
#define MEMBER_UINT(type, member, text) MEMBER_FIELD(type, member, FIELD_UINT, .help = text)
#define MEMBER_BOOL(type, member, text) MEMBER_FIELD(type, member, FIELD_BOOL, .help = text)
#define MEMBER_CHOICE(type, member, list, text)                                                    \
    MEMBER_FIELD(type, member, FIELD_CHOICE, .choices = list, .help = text)

// Whether two names are the same; '-' in the first reads as '_'.
bool members_name_is(const char *name, const char *field);

// The field of that name, or NULL.
const struct case_field *members_find(const struct case_field *fields, const char *name);

// INVALID_ARGUMENT for the first member outside its range, with what is accepted.
enum status members_check(const void *record, const struct case_field *fields,
                          struct error *error) MUST_CHECK;

// Sets one member from text, as case_set() does. INVALID_ARGUMENT with what is accepted; the record
// is untouched then.
enum status members_set(void *record, const struct case_field *field, const char *value,
                        struct error *error) MUST_CHECK;

// INVALID_ARGUMENT: `whole` ("a case") has no field of that name. `nearest` has been offered those
// that it has.
enum status members_refuse_name(const char *whole, const char *name, const struct nearest *nearest,
                                struct error *error) MUST_CHECK;

// Writes a member's value as members_set() would read it. Returns the length as snprintf does.
int members_get(const void *record, const struct case_field *field, char *text, size_t size);

#endif
