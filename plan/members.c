// SPDX-License-Identifier: Apache-2.0
#include "plan/members.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/number.h"

bool members_name_is(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a == '-' ? '_' : *a) != *b)
            return false;
    return *a == *b;
}

const struct case_field *members_find(const struct case_field *fields, const char *name)
{
    for (; fields->name; fields++)
        if (members_name_is(name, fields->name))
            return fields;
    return NULL;
}

// ---- members ------------------------------------------------------------------------------------

static int64_t load_int(const void *record, const struct case_field *field)
{
    const char *member = (const char *)record + field->offset;
    if (field->size == sizeof(int32_t)) {
        int32_t value;
        memcpy(&value, member, sizeof value);
        return value;
    }
    int64_t value;
    memcpy(&value, member, sizeof value);
    return value;
}

static void store_int(void *record, const struct case_field *field, int64_t value)
{
    char *member = (char *)record + field->offset;
    int32_t narrow = (int32_t)value;
    if (field->size == sizeof narrow)
        memcpy(member, &narrow, sizeof narrow);
    else
        memcpy(member, &value, sizeof value);
}

static double load_real(const void *record, const struct case_field *field)
{
    double value;
    memcpy(&value, (const char *)record + field->offset, sizeof value);
    return value;
}

static bool load_bool(const void *record, const struct case_field *field)
{
    return *((const unsigned char *)record + field->offset) != 0;
}

// ---- accepted values ----------------------------------------------------------------------------

#define QUOTED_MAX 48
#define HINT_MAX   64

static int print_choices(const struct case_field *field, char *text, size_t size)
{
    size_t length = 0;
    for (const struct case_choice *choice = field->choices; choice->name; choice++) {
        const char *joint = choice == field->choices ? "" : choice[1].name ? ", " : " or ";
        bool room = length < size;
        length += (size_t)snprintf(room ? text + length : NULL, room ? size - length : 0, "%s%s",
                                   joint, choice->name);
    }
    return (int)length;
}

int case_accepted(const struct case_field *field, char *text, size_t size)
{
    long long min = field->min, max = field->max;
    switch (field->kind) {
    case FIELD_TEXT:
        return snprintf(text, size, "up to %zu printable ASCII characters", field->size - 1);
    case FIELD_CHOICE:
        return print_choices(field, text, size);
    case FIELD_INT:
        return snprintf(text, size, "%lld to %lld", min, max);
    case FIELD_UINT:
        return snprintf(text, size, "a whole number from 0 to 18446744073709551615");
    case FIELD_REAL:
        return snprintf(text, size, "a number from %.7g to %.7g", field->real_min, field->real_max);
    case FIELD_BOOL:
        return snprintf(text, size, "true or false");
    case FIELD_LIST:
        return snprintf(text, size,
                        "up to %d whole numbers from %lld to %lld with commas between them",
                        SEQUENCES_MAX, min, max);
    }
    return 0;
}

// The value for a message: truncated, with unprintable characters replaced.
static void quote(const char *value, char quoted[QUOTED_MAX])
{
    size_t i = 0;
    for (; i < QUOTED_MAX - 1 && value[i]; i++)
        quoted[i] = value[i] >= ' ' && value[i] <= '~' ? value[i] : '?';
    quoted[i] = '\0';
    if (value[i])
        memcpy(quoted + i - 3, "...", 3);
}

static enum status refuse(const struct case_field *field, const char *value, struct error *error)
{
    char accepted[CASE_ACCEPTED_MAX], quoted[QUOTED_MAX];
    case_accepted(field, accepted, sizeof accepted);
    quote(value, quoted);
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s is '%s'; accepted is %s", field->name,
                     quoted, accepted);
}

static bool is_label(const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    if (length == size)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return true;
}

static bool list_valid(const void *record, const struct case_field *field)
{
    int32_t count = ((const struct cp_case *)record)->list_count[field->list];
    if (!case_lists_fit(record)) // then only the list with the wrong count is invalid
        return count >= 0 && count <= SEQUENCES_MAX;
    const int32_t *values = case_list(record, field->list, &count);
    for (int32_t i = 0; i < count; i++)
        if (values[i] < field->min || values[i] > field->max)
            return false;
    return true;
}

static bool field_valid(const void *record, const struct case_field *field)
{
    switch (field->kind) {
    case FIELD_TEXT:
        return is_label((const char *)record + field->offset, field->size);
    case FIELD_CHOICE:
        return case_choice_name(field->choices, (int)load_int(record, field))[0] != '?';
    case FIELD_INT:
        return load_int(record, field) >= field->min && load_int(record, field) <= field->max;
    case FIELD_REAL: // written so that NaN fails
        return load_real(record, field) >= field->real_min &&
               load_real(record, field) <= field->real_max;
    case FIELD_LIST:
        return list_valid(record, field);
    case FIELD_UINT:
    case FIELD_BOOL:
        break;
    }
    return true;
}

// The value for a message. A choice without a name is shown as a number, 0 as "unspecified".
static void value_text(const void *record, const struct case_field *field, char *text, size_t size)
{
    if (field->kind == FIELD_LIST && !case_lists_fit(record))
        snprintf(text, size, "%lld numbers", (long long)load_int(record, field));
    else if (field->kind != FIELD_CHOICE)
        members_get(record, field, text, size);
    else if (load_int(record, field) == 0)
        snprintf(text, size, "unspecified");
    else
        snprintf(text, size, "%lld", (long long)load_int(record, field));
}

enum status members_check(const void *record, const struct case_field *fields, struct error *error)
{
    for (const struct case_field *field = fields; field->name; field++) {
        if (field_valid(record, field))
            continue;
        char text[MODEL_NAME_MAX];
        value_text(record, field, text, sizeof text);
        return refuse(field, text, error);
    }
    return STATUS_OK;
}

// ---- text to value ------------------------------------------------------------------------------

static const struct case_choice *find_choice(const struct case_choice *choices, const char *name)
{
    for (; choices && choices->name; choices++)
        if (strcmp(choices->name, name) == 0)
            return choices;
    return NULL;
}

static bool set_choice(void *record, const struct case_field *field, const char *value)
{
    const struct case_choice *choice = find_choice(field->choices, value);
    if (!choice)
        choice = find_choice(field->aliases, value);
    if (choice)
        store_int(record, field, choice->value);
    return choice != NULL;
}

// Fields with a maximum from this bound on accept a unit, k, m or g: tokens, elements, bytes and
// features.
#define UNIT_MAX (INT64_C(1) << 20)

static bool has_unit(const struct case_field *field)
{
    return field->max >= UNIT_MAX;
}

static bool parse_number(const struct case_field *field, const char *text, int64_t *value)
{
    return has_unit(field) ? number_parse_tokens(text, value) : number_parse_int(text, value);
}

// Reads one number of a list, up to the comma or the end. Moves *text behind it.
static bool parse_entry(const struct case_field *field, const char **text, int32_t *value)
{
    char number[16];
    size_t length = strcspn(*text, ",");
    int64_t parsed;
    if (length >= sizeof number)
        return false;
    memcpy(number, *text, length);
    number[length] = '\0';
    if (!parse_number(field, number, &parsed) || parsed < field->min || parsed > field->max)
        return false;
    *value = (int32_t)parsed;
    *text += length;
    return true;
}

// An empty text is an empty list. "1," and ",1" are errors.
static bool set_list(void *record, const struct case_field *field, const char *value)
{
    int32_t values[SEQUENCES_MAX], count = 0;
    for (bool more = *value; more;) {
        if (count == SEQUENCES_MAX || !parse_entry(field, &value, &values[count++]))
            return false;
        more = *value == ',';
        value += more;
    }
    case_list_set(record, field->list, values, count);
    return true;
}

static bool set_int(void *record, const struct case_field *field, const char *value)
{
    int64_t parsed;
    if (!parse_number(field, value, &parsed) || parsed < field->min || parsed > field->max)
        return false;
    store_int(record, field, parsed);
    return true;
}

static bool set_uint(void *record, const struct case_field *field, const char *value)
{
    uint64_t parsed;
    if (!number_parse_digits(value, &parsed))
        return false;
    memcpy((char *)record + field->offset, &parsed, sizeof parsed);
    return true;
}

static bool set_real(void *record, const struct case_field *field, const char *value)
{
    double parsed;
    if (!number_parse_real(value, &parsed) || parsed < field->real_min || parsed > field->real_max)
        return false;
    memcpy((char *)record + field->offset, &parsed, sizeof parsed);
    return true;
}

static bool set_bool(void *record, const struct case_field *field, const char *value)
{
    bool parsed = strcmp(value, "true") == 0;
    if (!parsed && strcmp(value, "false") != 0)
        return false;
    memcpy((char *)record + field->offset, &parsed, sizeof parsed);
    return true;
}

static bool set_text(void *record, const struct case_field *field, const char *value)
{
    if (!is_label(value, field->size))
        return false;
    if (find_choice(field->aliases, value))
        value = "";
    char *member = (char *)record + field->offset;
    memset(member, 0, field->size);
    memcpy(member, value, strlen(value));
    return true;
}

static bool field_set(void *record, const struct case_field *field, const char *value)
{
    switch (field->kind) {
    case FIELD_TEXT:
        return set_text(record, field, value);
    case FIELD_CHOICE:
        return set_choice(record, field, value);
    case FIELD_INT:
        return set_int(record, field, value);
    case FIELD_UINT:
        return set_uint(record, field, value);
    case FIELD_REAL:
        return set_real(record, field, value);
    case FIELD_BOOL:
        return set_bool(record, field, value);
    case FIELD_LIST:
        return set_list(record, field, value);
    }
    return false;
}

enum status members_set(void *record, const struct case_field *field, const char *value,
                        struct error *error)
{
    return field_set(record, field, value) ? STATUS_OK : refuse(field, value, error);
}

enum status members_refuse_name(const char *whole, const char *name, const struct nearest *nearest,
                                struct error *error)
{
    char quoted[QUOTED_MAX], hint[HINT_MAX];
    quote(name, quoted);
    nearest_hint(nearest, hint, sizeof hint);
    return error_set(error, STATUS_INVALID_ARGUMENT, "'%s' is not a field of %s%s", quoted, whole,
                     hint[0] ? hint : "; cpattn-submit(1) lists them");
}

// ---- value to text ------------------------------------------------------------------------------

static int print_list(const void *record, const struct case_field *field, char *text, size_t size)
{
    int32_t count;
    const int32_t *values = case_list(record, field->list, &count);
    size_t length = 0;
    if (size > 0)
        text[0] = '\0';
    for (int32_t i = 0; i < count; i++) {
        bool room = length < size;
        length += (size_t)snprintf(room ? text + length : NULL, room ? size - length : 0, "%s%d",
                                   i > 0 ? "," : "", values[i]);
    }
    return (int)length;
}

int members_get(const void *record, const struct case_field *field, char *text, size_t size)
{
    switch (field->kind) {
    case FIELD_TEXT:
        if (field->aliases && *((const char *)record + field->offset) == '\0')
            return snprintf(text, size, "%s", field->aliases->name);
        return snprintf(text, size, "%.*s", (int)field->size, (const char *)record + field->offset);
    case FIELD_CHOICE:
        return snprintf(text, size, "%s",
                        case_choice_name(field->choices, (int)load_int(record, field)));
    case FIELD_INT:
        return snprintf(text, size, "%lld", (long long)load_int(record, field));
    case FIELD_UINT:
        return snprintf(text, size, "%llu", (unsigned long long)load_int(record, field));
    case FIELD_REAL:
        return number_print_real(load_real(record, field), text, size);
    case FIELD_BOOL:
        return snprintf(text, size, "%s", load_bool(record, field) ? "true" : "false");
    case FIELD_LIST:
        return print_list(record, field, text, size);
    }
    return 0;
}
