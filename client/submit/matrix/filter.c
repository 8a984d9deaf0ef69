// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/filter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/number.h"

#define OR " or "

void filter_fini(struct filter *filter)
{
    for (int i = 0; i < filter->count; i++)
        condition_fini(&filter->conditions[i]);
    free(filter->conditions);
    *filter = (struct filter){0};
}

bool filter_matches(const struct filter *filter, const struct condition_subject *subject)
{
    bool holds = true;
    for (int i = 0; i < filter->count; i++) {
        const struct condition *condition = &filter->conditions[i];
        if (!condition->joined && !holds)
            return false;
        holds = condition_holds(condition, subject) || (condition->joined && holds);
    }
    return holds;
}

struct condition *filter_add_condition(struct filter *filter, struct error *error)
{
    size_t count = (size_t)filter->count + 1;
    struct condition *grown = reallocarray(filter->conditions, count, sizeof(*filter->conditions));
    if (!grown) {
        condition_no_memory(error);
        return NULL;
    }
    filter->conditions = grown;
    struct condition *condition = &grown[filter->count++];
    *condition = (struct condition){.kind = filter->kind};
    return condition;
}

// ---- from a text ------------------------------------------------------------------------------

// A pattern for the id. Without special characters it matches anywhere in the id.
static enum status text_add_id(struct condition *condition, const char *text, struct error *error)
{
    condition->target = TARGET_ID;
    if (strpbrk(text, "*?["))
        return condition_add_pattern(condition, text, error);
    char *pattern;
    if (asprintf(&pattern, "*%s*", text) < 0)
        return condition_no_memory(error);
    enum status status = condition_add_pattern(condition, pattern, error);
    free(pattern);
    return status;
}

// Adds the values between commas. For a list field, whose value has commas itself, all is one
// value.
static enum status text_add_values(struct condition *condition, char *values, struct error *error)
{
    bool list = condition->target == TARGET_FIELD && condition->field->kind == FIELD_LIST;
    enum status status = STATUS_OK;
    for (char *value = values; value && !status;) {
        char *comma = list ? NULL : strchr(value, ',');
        if (comma)
            *comma = '\0';
        status = condition_add_value(condition, value, error);
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

// Adds a bound. `sign` is '<' or '>', `inclusive` if '=' follows it; `value` is the text after
// that.
static enum status text_add_bound(struct condition *condition, const char *key, char sign,
                                  bool inclusive, const char *value, struct error *error)
{
    double bound;
    if (!condition_is_numeric(condition))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "'%c' needs a field that is a number; %.80s takes only = and !=", sign,
                         key);
    if (!parse_bound(value, &bound))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "'%.80s' is no number to compare %.80s with", value, key);
    struct condition_test *t = condition_add_test(condition, error);
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

// Adds KEY, a sign, VALUE. `sign` is find_sign() of `text`. Overwrites the sign in `text` with NUL.
static enum status text_add_relation(struct condition *condition, char *text, char *sign,
                                     const struct condition_names *names, int name_count,
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

// Finds the sign of a relation; NULL: none. '!' is a sign only before '=': "[!a]*" is a pattern.
static char *find_sign(char *text)
{
    char *sign = strpbrk(text, "=<>");
    return sign && *sign == '=' && sign > text && sign[-1] == '!' ? sign - 1 : sign;
}

static enum status text_add_condition(struct filter *filter, char *text,
                                      const struct condition_names *names, int name_count,
                                      bool joined, struct error *error)
{
    struct condition *condition = filter_add_condition(filter, error);
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
                            const struct condition_names *names, int name_count,
                            struct error *error)
{
    filter->kind = kind;
    char *copy = strdup(text);
    if (!copy)
        return condition_no_memory(error);
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
