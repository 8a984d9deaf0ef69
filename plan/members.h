// SPDX-License-Identifier: Apache-2.0
// Sets, checks and prints members of plain structs by name, driven by a table of struct case_field
// (plan/case.h). Cases and the specs of other kinds use such tables. A table ends with a NULL name.
// Only cases have FIELD_LIST.
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

// The fields of placement, for specs with `implementation`, `nodes` and `ranks_per_node` as in a
// case.
#define MEMBERS_PLACE(type)                                                                        \
    MEMBER_FIELD(type, implementation, FIELD_TEXT, .aliases = case_implementation_aliases,         \
                 .help = "program that runs as the ranks: cpattn, or a guest of the daemon"),      \
        MEMBER_INT(type, nodes, 0, HOSTS_MAX,                                                      \
                   "hosts over which the ranks are spread evenly, 0: any"),                        \
        MEMBER_INT(type, ranks_per_node, 0, WORLD_SIZE_MAX, "ranks on each host, 0: any")

// True if the names are equal; '-' in the first counts as '_'.
bool members_name_is(const char *name, const char *field);

// Finds a field by name; NULL: none.
const struct case_field *members_find(const struct case_field *fields, const char *name);

// INVALID_ARGUMENT: a sentence names the first member outside its range and what is accepted.
enum status members_check(const void *record, const struct case_field *fields,
                          struct error *error) MUST_CHECK;

// Sets one member from text, as case_set() does. INVALID_ARGUMENT says what is accepted; the record
// is untouched then.
enum status members_set(void *record, const struct case_field *field, const char *value,
                        struct error *error) MUST_CHECK;

// INVALID_ARGUMENT: `whole` ("a case") has no field of that name. `nearest` must have been offered
// the existing names.
enum status members_refuse_name(const char *whole, const char *name, const struct nearest *nearest,
                                struct error *error) MUST_CHECK;

// Writes a member's value as members_set() would read it. Returns the length as snprintf does.
int members_get(const void *record, const struct case_field *field, char *text, size_t size);

#endif
