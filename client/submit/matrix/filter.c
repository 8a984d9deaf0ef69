// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "plan/number.h"

#define OR " or "

// A field's value as a number: both members of integers, flags and choices; `real` of reals.
struct number {
    int64_t integer;
    double real;
};

enum test_part {
    TEST_EQUAL = 1,
    TEST_PATTERN = 2,
    TEST_MIN = 4,
    TEST_MAX = 8,
    TEST_MULTIPLE = 16,
    TEST_FIELD = 32,
};

struct test {
    unsigned parts; // TEST_* bits: all of them have to hold
    struct number equal;
    char *pattern; // owned
    double min, max;
    int64_t multiple;
    const struct case_field *other;
};

// What a condition compares.
enum target { TARGET_FIELD, TARGET_PAIR, TARGET_PRODUCT, TARGET_LABEL, TARGET_ID };

struct filter_condition {
    const struct job_kind *kind;
    enum target target;
    bool joined;                                          // by "or" to the condition before it
    const struct case_field *field;                       // TARGET_FIELD; of TARGET_PAIR the first
    const struct case_field *second;                      // TARGET_PAIR
    const struct case_field *factors[FILTER_FACTORS_MAX]; // TARGET_PRODUCT
    int factor_count;
    int label; // TARGET_LABEL: which of the names
    const struct filter_names *names;
    bool negated;
    struct test *tests; // any of them has to hold
    int count;
};

static enum status no_memory(struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for a filter");
}

void filter_fini(struct filter *filter)
{
    for (int i = 0; i < filter->count; i++) {
        for (int j = 0; j < filter->conditions[i].count; j++)
            free(filter->conditions[i].tests[j].pattern);
        free(filter->conditions[i].tests);
    }
    free(filter->conditions);
    *filter = (struct filter){0};
}

// ---- evaluation -------------------------------------------------------------------------------

static struct number field_number(const struct job_spec *spec, const struct case_field *field)
{
    const char *member = spec->bytes + field->offset;
    struct number number = {0, 0};
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
    number.real = (double)number.integer;
    return number;
}

// Products beyond 64 bits become the largest number.
static struct number product(const struct job_spec *spec, const struct filter_condition *condition)
{
    struct number number = {1, 1};
    for (int i = 0; i < condition->factor_count; i++)
        if (__builtin_mul_overflow(
                number.integer, field_number(spec, condition->factors[i]).integer, &number.integer))
            number.integer = INT64_MAX;
    number.real = (double)number.integer;
    return number;
}

static bool number_equal(struct number a, struct number b)
{
    return a.integer == b.integer && a.real == b.real;
}

static bool test_number(const struct test *t, const struct job_spec *spec, struct number value)
{
    return (!(t->parts & TEST_EQUAL) || number_equal(value, t->equal)) &&
           (!(t->parts & TEST_MIN) || value.real >= t->min) &&
           (!(t->parts & TEST_MAX) || value.real <= t->max) &&
           (!(t->parts & TEST_MULTIPLE) || value.integer % t->multiple == 0) &&
           (!(t->parts & TEST_FIELD) || number_equal(value, field_number(spec, t->other)));
}

// Texts, and lists as text, are compared with shell patterns.
static bool field_is_text(const struct case_field *field)
{
    return field->kind == FIELD_TEXT || field->kind == FIELD_LIST;
}

static bool test_text(const struct test *t, const struct job_spec *spec,
                      const struct case_field *field)
{
    char text[CASE_VALUE_MAX];
    job_spec_get(spec, field, text, sizeof(text));
    return fnmatch(t->pattern, text, 0) == 0;
}

static bool test_holds(const struct filter_condition *condition, const struct test *t,
                       const struct filter_subject *subject)
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

static bool condition_holds(const struct filter_condition *condition,
                            const struct filter_subject *subject)
{
    bool any = false;
    for (int i = 0; i < condition->count && !any; i++)
        any = test_holds(condition, &condition->tests[i], subject);
    return any != condition->negated;
}

bool filter_matches(const struct filter *filter, const struct filter_subject *subject)
{
    bool holds = true;
    for (int i = 0; i < filter->count; i++) {
        const struct filter_condition *condition = &filter->conditions[i];
        if (!condition->joined && !holds)
            return false;
        holds = condition_holds(condition, subject) || (condition->joined && holds);
    }
    return holds;
}

// ---- making conditions ------------------------------------------------------------------------

static struct filter_condition *condition_add(struct filter *filter, struct error *error)
{
    size_t count = (size_t)filter->count + 1;
    struct filter_condition *grown =
        reallocarray(filter->conditions, count, sizeof(*filter->conditions));
    if (!grown) {
        no_memory(error);
        return NULL;
    }
    filter->conditions = grown;
    struct filter_condition *condition = &grown[filter->count++];
    *condition = (struct filter_condition){.kind = filter->kind};
    return condition;
}

static struct test *test_add(struct filter_condition *condition, struct error *error)
{
    size_t count = (size_t)condition->count + 1;
    struct test *grown = reallocarray(condition->tests, count, sizeof(*condition->tests));
    if (!grown) {
        no_memory(error);
        return NULL;
    }
    condition->tests = grown;
    struct test *t = &grown[condition->count++];
    *t = (struct test){0};
    return t;
}

// "batch*heads*seqlen_q": a product of fields that are whole numbers.
static enum status condition_aim_product(struct filter_condition *condition, const char *key,
                                         struct error *error)
{
    char name[64];
    condition->target = TARGET_PRODUCT;
    for (const char *at = key;; at++) {
        size_t length = strcspn(at, "*");
        const struct case_field *field = NULL;
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        if (condition->factor_count < FILTER_FACTORS_MAX)
            field = job_kind_field(condition->kind, name);
        if (!field || field->kind != FIELD_INT)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "'%.80s' is not a product of up to %d integer fields", key,
                             FILTER_FACTORS_MAX);
        condition->factors[condition->factor_count++] = field;
        at += length;
        if (!*at)
            return STATUS_OK;
    }
}

// Finds what `key` stands for: a name with labels, a field of the job, or a product of fields.
static enum status condition_aim(struct filter_condition *condition, const char *key,
                                 const struct filter_names *names, int name_count,
                                 struct error *error)
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

// A condition on a label that no case has would never be true.
static enum status label_check(const struct filter_names *names, const char *pattern,
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

static enum status test_set_pattern(struct test *t, const char *pattern, struct error *error)
{
    t->parts = TEST_PATTERN;
    t->pattern = strdup(pattern);
    return t->pattern ? STATUS_OK : no_memory(error);
}

static enum status test_set_whole(struct test *t, const char *value, struct error *error)
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

static enum status test_add_value(struct filter_condition *condition, const char *value,
                                  struct error *error)
{
    struct test *t = test_add(condition, error);
    if (!t)
        return STATUS_RESOURCE_EXHAUSTED;
    if (condition->target == TARGET_LABEL) {
        enum status status = label_check(condition->names, value, error);
        return status ? status : test_set_pattern(t, value, error);
    }
    if (condition->target == TARGET_PRODUCT)
        return test_set_whole(t, value, error);
    if (condition->target == TARGET_ID || field_is_text(condition->field))
        return test_set_pattern(t, value, error);
    struct job_spec spec;
    job_spec_init(&spec, condition->kind);
    enum status status = job_spec_set(&spec, condition->field->name, value, error);
    if (status)
        return status;
    t->parts = TEST_EQUAL;
    t->equal = field_number(&spec, condition->field);
    return STATUS_OK;
}

static bool condition_is_numeric(const struct filter_condition *condition)
{
    return condition->target == TARGET_PRODUCT || condition->target == TARGET_PAIR ||
           (condition->target == TARGET_FIELD &&
            (condition->field->kind == FIELD_INT || condition->field->kind == FIELD_REAL));
}

// ---- from a file ------------------------------------------------------------------------------

static enum status yaml_field(const struct job_kind *kind, const struct yaml_node *node,
                              struct test *t, struct error *error)
{
    t->other = yaml_text(node) ? job_kind_field(kind, yaml_text(node)) : NULL;
    if (!t->other || field_is_text(t->other))
        return yaml_expected(node, error, "the name of a field of a case, not of a text or a list");
    t->parts |= TEST_FIELD;
    return STATUS_OK;
}

static enum status yaml_test_part(const struct job_kind *kind, const struct yaml_node *node,
                                  struct test *t, struct error *error)
{
    const char *key = yaml_key(node);
    if (strcmp(key, "field") == 0)
        return yaml_field(kind, node, t, error);
    if (strcmp(key, "multiple_of") == 0) {
        t->parts |= TEST_MULTIPLE;
        return yaml_int(node, 1, INT32_MAX, &t->multiple, error);
    }
    bool is_min = strcmp(key, "min") == 0;
    t->parts |= is_min ? TEST_MIN : TEST_MAX;
    return yaml_real(node, -1e18, 1e18, is_min ? &t->min : &t->max, error);
}

static enum status yaml_add_tests(struct filter_condition *condition, const struct yaml_node *map,
                                  struct error *error)
{
    static const char *const keys[] = {"min", "max", "multiple_of", "field", NULL};
    bool numeric = condition_is_numeric(condition);
    enum status status = yaml_check_keys(map, keys, error);
    if (status)
        return status;
    struct test *t = test_add(condition, error);
    if (!t)
        return STATUS_RESOURCE_EXHAUSTED;
    for (const struct yaml_node *n = yaml_first(map); n && !status; n = yaml_next(n)) {
        if (!numeric && strcmp(yaml_key(n), "field") != 0)
            return yaml_error_key(n, error, "'%s' needs a field that is a number", yaml_key(n));
        status = yaml_test_part(condition->kind, n, t, error);
    }
    if (!status && t->parts == 0)
        return yaml_expected(map, error, "a test: min, max, multiple_of or field");
    if (!status && (t->parts & TEST_FIELD) &&
        (condition->target != TARGET_FIELD || condition->field->kind != t->other->kind))
        return yaml_error(map, error, "'field' compares two fields of one kind");
    return status;
}

static enum status yaml_add_test(struct filter_condition *condition, const struct yaml_node *node,
                                 struct error *error)
{
    if (yaml_kind(node) == YAML_MAP)
        return yaml_add_tests(condition, node, error);
    if (yaml_kind(node) == YAML_LIST)
        return yaml_expected(node, error, "a value or a map of tests");
    struct error why;
    enum status status = test_add_value(condition, yaml_text(node), &why);
    return status ? yaml_error(node, error, "%s", why.text) : STATUS_OK;
}

static enum status yaml_add_any(struct filter_condition *condition, const struct yaml_node *node,
                                struct error *error)
{
    if (yaml_kind(node) != YAML_LIST)
        return yaml_add_test(condition, node, error);
    if (yaml_count(node) == 0)
        return yaml_expected(node, error, "at least one value");
    enum status status = STATUS_OK;
    for (const struct yaml_node *n = yaml_first(node); n && !status; n = yaml_next(n))
        status = yaml_add_test(condition, n, error);
    return status;
}

static enum status yaml_add_condition(struct filter *filter, const struct yaml_node *node,
                                      const struct filter_names *names, int name_count,
                                      struct error *error)
{
    struct filter_condition *condition = condition_add(filter, error);
    if (!condition)
        return STATUS_RESOURCE_EXHAUSTED;
    struct error why;
    if (condition_aim(condition, yaml_key(node), names, name_count, &why))
        return yaml_error_key(node, error, "%s", why.text);
    const struct yaml_node *negation = yaml_find(node, "not");
    if (!negation)
        return yaml_add_any(condition, node, error);
    if (yaml_count(node) > 1)
        return yaml_error(node, error,
                          "'not' must be the only key; move the other tests "
                          "into it");
    condition->negated = true;
    return yaml_add_any(condition, negation, error);
}

enum status filter_add_yaml(struct filter *filter, const struct job_kind *kind,
                            const struct yaml_node *map, const struct filter_names *names,
                            int name_count, struct error *error)
{
    filter->kind = kind;
    enum status status = yaml_is(map, YAML_MAP, error);
    if (!status && yaml_count(map) == 0)
        return yaml_expected(map, error, "at least one condition");
    for (const struct yaml_node *n = yaml_first(map); n && !status; n = yaml_next(n))
        status = yaml_add_condition(filter, n, names, name_count, error);
    return status;
}

// ---- from a text ------------------------------------------------------------------------------

// A pattern for the id. Without special characters it matches anywhere in the id.
static enum status text_add_id(struct filter_condition *condition, const char *text,
                               struct error *error)
{
    condition->target = TARGET_ID;
    struct test *t = test_add(condition, error);
    if (!t)
        return STATUS_RESOURCE_EXHAUSTED;
    if (strpbrk(text, "*?["))
        return test_set_pattern(t, text, error);
    t->parts = TEST_PATTERN;
    size_t size = strlen(text) + 3;
    t->pattern = malloc(size);
    if (!t->pattern)
        return no_memory(error);
    snprintf(t->pattern, size, "*%s*", text);
    return STATUS_OK;
}

// Values with commas between them, but a list, which has commas itself, is one value.
static enum status text_add_values(struct filter_condition *condition, char *values,
                                   struct error *error)
{
    bool list = condition->target == TARGET_FIELD && condition->field->kind == FIELD_LIST;
    enum status status = STATUS_OK;
    for (char *value = values; value && !status;) {
        char *comma = list ? NULL : strchr(value, ',');
        if (comma)
            *comma = '\0';
        status = test_add_value(condition, value, error);
        value = comma ? comma + 1 : NULL;
    }
    return status;
}

// "16k" tokens are 16384, as in options.
static bool parse_bound(const char *text, double *bound)
{
    int64_t tokens;
    if (number_parse_real(text, bound))
        return true;
    if (!number_parse_tokens(text, &tokens))
        return false;
    *bound = (double)tokens;
    return true;
}

// `sign` begins with < or >, perhaps followed by '='; `value` is the text after these.
static enum status text_add_bound(struct filter_condition *condition, const char *key, char sign,
                                  bool inclusive, const char *value, struct error *error)
{
    double bound;
    if (!condition_is_numeric(condition))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "'%c' needs a field that is a number; %.80s is none", sign, key);
    if (!parse_bound(value, &bound))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "'%.80s' is no number to compare %.80s with", value, key);
    struct test *t = test_add(condition, error);
    if (!t)
        return STATUS_RESOURCE_EXHAUSTED;
    if (sign == '>') {
        t->parts = TEST_MIN;
        t->min = inclusive ? bound : nextafter(bound, HUGE_VAL);
    } else {
        t->parts = TEST_MAX;
        t->max = inclusive ? bound : nextafter(bound, -HUGE_VAL);
    }
    return STATUS_OK;
}

// KEY, a sign, VALUE; `sign` is the first of "!=<>" in `text`, which is written to.
static enum status text_add_relation(struct filter_condition *condition, char *text, char *sign,
                                     const struct filter_names *names, int name_count,
                                     struct error *error)
{
    char kind = *sign;
    bool equal = kind == '=' || sign[1] == '=';
    *sign = '\0';
    char *value = sign + 1 + (kind != '=' && equal);
    enum status status = condition_aim(condition, text, names, name_count, error);
    if (status)
        return status;
    if (kind == '<' || kind == '>')
        return text_add_bound(condition, text, kind, equal, value, error);
    condition->negated = kind == '!';
    return text_add_values(condition, value, error);
}

// A '!' stands for itself unless '=' follows: "[!a]*" is a pattern.
static char *find_sign(char *text)
{
    char *sign = strpbrk(text, "=<>");
    return sign && *sign == '=' && sign > text && sign[-1] == '!' ? sign - 1 : sign;
}

static enum status text_add_condition(struct filter *filter, char *text,
                                      const struct filter_names *names, int name_count, bool joined,
                                      struct error *error)
{
    struct filter_condition *condition = condition_add(filter, error);
    if (!condition)
        return STATUS_RESOURCE_EXHAUSTED;
    condition->joined = joined;
    text += strspn(text, " ");
    size_t length = strlen(text);
    for (; length > 0 && text[length - 1] == ' '; length--)
        text[length - 1] = '\0';
    if (joined && !*text)
        return error_set(error, STATUS_INVALID_ARGUMENT, "a filter is missing after 'or'");
    if (length > 3 && strcmp(text + length - 3, " or") == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "a filter is missing after 'or'");
    char *sign = find_sign(text);
    return sign ? text_add_relation(condition, text, sign, names, name_count, error)
                : text_add_id(condition, text, error);
}

enum status filter_add_text(struct filter *filter, const struct job_kind *kind, const char *text,
                            const struct filter_names *names, int name_count, struct error *error)
{
    filter->kind = kind;
    char *copy = strdup(text);
    if (!copy)
        return no_memory(error);
    enum status status = STATUS_OK;
    bool joined = false;
    for (char *part = copy; part && !status; joined = true) {
        char *next = strstr(part, OR);
        if (next) {
            *next = '\0';
            next += strlen(OR);
        }
        status = text_add_condition(filter, part, names, name_count, joined, error);
        part = next;
    }
    free(copy);
    return status;
}
