// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/filter_yaml.h"

#include <string.h>

static enum status yaml_field(const struct job_kind *kind, const struct yaml_node *node,
                              struct condition_test *t, struct error *error)
{
    t->other = yaml_text(node) ? job_kind_field(kind, yaml_text(node)) : NULL;
    if (!t->other || condition_is_text(t->other))
        return yaml_expected(node, error, "the name of a field of a case, not of a text or a list");
    t->parts |= TEST_FIELD;
    return STATUS_OK;
}

static enum status yaml_test_part(const struct job_kind *kind, const struct yaml_node *node,
                                  struct condition_test *t, struct error *error)
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

static enum status yaml_add_tests(struct condition *condition, const struct yaml_node *map,
                                  struct error *error)
{
    static const char *const keys[] = {"min", "max", "multiple_of", "field", NULL};
    bool numeric = condition_is_numeric(condition);
    enum status status = yaml_check_keys(map, keys, error);
    if (status)
        return status;
    struct condition_test *t = condition_add_test(condition, error);
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

static enum status yaml_add_test(struct condition *condition, const struct yaml_node *node,
                                 struct error *error)
{
    if (yaml_kind(node) == YAML_MAP)
        return yaml_add_tests(condition, node, error);
    if (yaml_kind(node) == YAML_LIST)
        return yaml_expected(node, error, "a value or a map of tests");
    struct error why;
    enum status status = condition_add_value(condition, yaml_text(node), &why);
    return status ? yaml_error(node, error, "%s", why.text) : STATUS_OK;
}

static enum status yaml_add_any(struct condition *condition, const struct yaml_node *node,
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
                                      const struct condition_names *names, int name_count,
                                      struct error *error)
{
    struct condition *condition = filter_add_condition(filter, error);
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
                            const struct yaml_node *map, const struct condition_names *names,
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
