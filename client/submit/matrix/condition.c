// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/condition.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"

enum status condition_no_memory(struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for a filter");
}

void condition_fini(struct condition *condition)
{
    for (int i = 0; i < condition->count; i++)
        free(condition->tests[i].pattern);
    free(condition->tests);
    *condition = (struct condition){0};
}

// ---- evaluation -------------------------------------------------------------------------------

static struct condition_number field_number(const struct job_spec *spec,
                                            const struct case_field *field)
{
    const char *member = spec->bytes + field->offset;
    struct condition_number number = {0, 0};
    int32_t narrow;
    bool flag;
    if (field->kind == FIELD_REAL) {
        memcpy(&number.real, member, sizeof(number.real));
        return number;
    }
    if (field->kind == FIELD_BOOL) {
        memcpy(&flag, member, sizeof(flag));
        number.integer = flag;
    } else if (field->size == sizeof(narrow)) {
        memcpy(&narrow, member, sizeof(narrow));
        number.integer = narrow;
    } else {
        memcpy(&number.integer, member, sizeof(number.integer));
    }
    number.real =
        field->kind == FIELD_UINT ? (double)(uint64_t)number.integer : (double)number.integer;
    return number;
}

// Products beyond 64 bits become the largest number.
static struct condition_number product(const struct job_spec *spec,
                                       const struct condition *condition)
{
    struct condition_number number = {1, 1};
    for (int i = 0; i < condition->factor_count; i++)
        if (__builtin_mul_overflow(
                number.integer, field_number(spec, condition->factors[i]).integer, &number.integer))
            number.integer = INT64_MAX;
    number.real = (double)number.integer;
    return number;
}

static bool number_equal(struct condition_number a, struct condition_number b)
{
    return a.integer == b.integer && a.real == b.real;
}

// Numbers of 2^63 and more are negative as integers.
static bool is_multiple(struct condition_number value, int64_t of)
{
    return value.real < 0 ? value.integer % of == 0 : (uint64_t)value.integer % (uint64_t)of == 0;
}

static bool test_number(const struct condition_test *t, const struct job_spec *spec,
                        struct condition_number value)
{
    return (!(t->parts & TEST_EQUAL) || number_equal(value, t->equal)) &&
           (!(t->parts & TEST_MIN) || value.real >= t->min) &&
           (!(t->parts & TEST_MAX) || value.real <= t->max) &&
           (!(t->parts & TEST_MULTIPLE) || is_multiple(value, t->multiple)) &&
           (!(t->parts & TEST_FIELD) || number_equal(value, field_number(spec, t->other)));
}

bool condition_is_text(const struct case_field *field)
{
    return field->kind == FIELD_TEXT || field->kind == FIELD_LIST;
}

static bool test_text(const struct condition_test *t, const struct job_spec *spec,
                      const struct case_field *field)
{
    char text[CASE_VALUE_MAX];
    job_spec_get(spec, field, text, sizeof(text));
    return fnmatch(t->pattern, text, 0) == 0;
}

static bool test_holds(const struct condition *condition, const struct condition_test *t,
                       const struct condition_subject *subject)
{
    switch (condition->target) {
    case TARGET_LABEL:
        return fnmatch(t->pattern, subject->labels[condition->label], 0) == 0;
    case TARGET_ID:
        return fnmatch(t->pattern, subject->id, 0) == 0;
    case TARGET_PRODUCT:
        return test_number(t, subject->spec, product(subject->spec, condition));
    case TARGET_FIELD:
    case TARGET_PAIR:
        break;
    }
    if (t->parts & TEST_PATTERN)
        return test_text(t, subject->spec, condition->field);
    return test_number(t, subject->spec, field_number(subject->spec, condition->field)) &&
           (condition->target == TARGET_FIELD ||
            test_number(t, subject->spec, field_number(subject->spec, condition->second)));
}

bool condition_holds(const struct condition *condition, const struct condition_subject *subject)
{
    bool any = false;
    for (int i = 0; i < condition->count && !any; i++)
        any = test_holds(condition, &condition->tests[i], subject);
    return any != condition->negated;
}

// ---- making conditions ------------------------------------------------------------------------

struct condition_test *condition_add_test(struct condition *condition, struct error *error)
{
    size_t count = (size_t)condition->count + 1;
    struct condition_test *grown = reallocarray(condition->tests, count, sizeof(*condition->tests));
    if (!grown) {
        condition_no_memory(error);
        return NULL;
    }
    condition->tests = grown;
    struct condition_test *t = &grown[condition->count++];
    *t = (struct condition_test){0};
    return t;
}

// "batch*heads*seqlen_q": a product of fields that are whole numbers.
static enum status condition_aim_product(struct condition *condition, const char *key,
                                         struct error *error)
{
    char name[64];
    condition->target = TARGET_PRODUCT;
    for (const char *at = key;; at++) {
        size_t length = strcspn(at, "*");
        const struct case_field *field = NULL;
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        if (condition->factor_count < CONDITION_FACTORS_MAX)
            field = job_kind_field(condition->kind, name);
        if (!field || field->kind != FIELD_INT)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "'%.80s' is not a product of up to %d integer fields", key,
                             CONDITION_FACTORS_MAX);
        condition->factors[condition->factor_count++] = field;
        at += length;
        if (!*at)
            return STATUS_OK;
    }
}

enum status condition_aim(struct condition *condition, const char *key,
                          const struct condition_names *names, int name_count, struct error *error)
{
    struct nearest nearest;
    nearest_init(&nearest, key);
    for (int i = 0; i < name_count; i++) {
        nearest_offer(&nearest, names[i].name);
        if (strcmp(key, names[i].name) != 0)
            continue;
        condition->target = TARGET_LABEL;
        condition->label = i;
        condition->names = &names[i];
        return STATUS_OK;
    }
    condition->field = job_kind_field(condition->kind, key);
    if (condition->field)
        return STATUS_OK;
    if (strchr(key, '*'))
        return condition_aim_product(condition, key, error);
    const struct case_pair *pair = job_kind_pair(condition->kind, key);
    if (pair) {
        condition->target = TARGET_PAIR;
        condition->field = case_field_find(pair->members[0]);
        condition->second = case_field_find(pair->members[1]);
        return STATUS_OK;
    }
    for (const struct case_field *f = job_kind_fields(condition->kind); f->name; f++)
        nearest_offer(&nearest, f->name);
    bool attends = condition->kind == &job_kind_attention;
    for (const struct case_pair *p = case_pairs(); p->name && attends; p++)
        nearest_offer(&nearest, p->name);
    char hint[NEAREST_WORD_MAX + 32];
    return error_set(error, STATUS_INVALID_ARGUMENT, "'%.80s' is neither a field nor an axis%s",
                     key, nearest_hint(&nearest, hint, sizeof(hint)));
}

// Refuses a pattern that matches no label: its condition would never be true.
static enum status label_check(const struct condition_names *names, const char *pattern,
                               struct error *error)
{
    struct nearest nearest;
    nearest_init(&nearest, pattern);
    for (int i = 0; i < names->label_count; i++) {
        if (fnmatch(pattern, names->labels[i], 0) == 0)
            return STATUS_OK;
        nearest_offer(&nearest, names->labels[i]);
    }
    char hint[NEAREST_WORD_MAX + 32];
    return error_set(error, STATUS_INVALID_ARGUMENT, "no %s is called '%.80s'%s", names->name,
                     pattern, nearest_hint(&nearest, hint, sizeof(hint)));
}

enum status condition_add_pattern(struct condition *condition, const char *pattern,
                                  struct error *error)
{
    struct condition_test *t = condition_add_test(condition, error);
    if (!t)
        return STATUS_RESOURCE_EXHAUSTED;
    t->parts = TEST_PATTERN;
    t->pattern = strdup(pattern);
    return t->pattern ? STATUS_OK : condition_no_memory(error);
}

static enum status test_set_whole(struct condition_test *t, const char *value, struct error *error)
{
    char *end;
    size_t digits = strspn(value, "0123456789");
    errno = 0;
    t->parts = TEST_EQUAL;
    t->equal.integer = strtoll(value, &end, 10);
    t->equal.real = (double)t->equal.integer;
    if (digits > 0 && !value[digits] && !errno)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "'%.80s' is no value of a product; accepted is a whole number", value);
}

enum status condition_add_value(struct condition *condition, const char *value, struct error *error)
{
    if (condition->target == TARGET_LABEL) {
        enum status status = label_check(condition->names, value, error);
        return status ? status : condition_add_pattern(condition, value, error);
    }
    if (condition->target == TARGET_ID ||
        (condition->target != TARGET_PRODUCT && condition_is_text(condition->field)))
        return condition_add_pattern(condition, value, error);
    struct condition_test *t = condition_add_test(condition, error);
    if (!t)
        return STATUS_RESOURCE_EXHAUSTED;
    if (condition->target == TARGET_PRODUCT)
        return test_set_whole(t, value, error);
    struct job_spec spec;
    job_spec_init(&spec, condition->kind);
    enum status status = job_spec_set(&spec, condition->field->name, value, error);
    if (status)
        return status;
    t->parts = TEST_EQUAL;
    t->equal = field_number(&spec, condition->field);
    return STATUS_OK;
}

bool condition_is_numeric(const struct condition *condition)
{
    return condition->target == TARGET_PRODUCT || condition->target == TARGET_PAIR ||
           (condition->target == TARGET_FIELD &&
            (condition->field->kind == FIELD_INT || condition->field->kind == FIELD_UINT ||
             condition->field->kind == FIELD_REAL));
}
