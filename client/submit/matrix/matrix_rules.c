// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/matrix_rules.h"

#include <stdlib.h>

#include "client/submit/matrix/filter_yaml.h"
#include "client/submit/matrix/matrix_fields.h"

static void *make_room(int count, size_t size, struct error *error)
{
    void *array = calloc(count > 0 ? (size_t)count : 1, size);
    if (!array)
        error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for the matrix");
    return array;
}

// Finds the conditions and the other key that an item has to have.
static enum status read_item(const struct yaml_node *node, const char *const *keys,
                             const struct yaml_node **when, const char *other_key,
                             const struct yaml_node **other, struct error *error)
{
    enum status status = yaml_is(node, YAML_MAP, error);
    if (status || (status = yaml_check_keys(node, keys, error)) ||
        (status = yaml_require(node, "when", when, error)))
        return status;
    return yaml_require(node, other_key, other, error);
}

static enum status read_when(const struct matrix_scope *scope, const struct yaml_node *when,
                             struct filter *filter, struct error *error)
{
    return filter_add_yaml(filter, scope->kind, when, scope->names, scope->name_count, error);
}

// ---- assignments ------------------------------------------------------------------------------

static enum status read_change(struct matrix_rules *r, const struct yaml_node *node,
                               const struct matrix_scope *scope, struct error *error)
{
    static const char *const keys[] = {"when", "fields", NULL};
    const struct yaml_node *when, *fields;
    struct job_spec spec = *scope->defaults;
    uint64_t mask;
    enum status status = read_item(node, keys, &when, "fields", &fields, error);
    if (!status)
        status = matrix_fields_apply(fields, &spec, &mask, error);
    if (status)
        return status;
    struct matrix_change *change = &r->changes[r->change_count++];
    change->fields = fields;
    return read_when(scope, when, &change->when, error);
}

static enum status read_changes(struct matrix_rules *r, const struct yaml_node *root,
                                const struct matrix_scope *scope, struct error *error)
{
    const struct yaml_node *list = NULL;
    enum status status = yaml_get(root, "set", YAML_LIST, &list, error);
    if (status || !list)
        return status;
    r->changes = make_room(yaml_count(list), sizeof(*r->changes), error);
    if (!r->changes)
        return STATUS_RESOURCE_EXHAUSTED;
    for (const struct yaml_node *n = yaml_first(list); n && !status; n = yaml_next(n))
        status = read_change(r, n, scope, error);
    return status;
}

// ---- exclude ----------------------------------------------------------------------------------

static enum status read_kind(const struct yaml_node *node, enum matrix_kind *kind,
                             struct error *error)
{
    static const char *const names[] = {"backend", "duplicate", "meaningless", NULL};
    static const enum matrix_kind kinds[] = {KIND_BACKEND, KIND_DUPLICATE, KIND_MEANINGLESS};
    int index = -1;
    enum status status = yaml_get_choice(node, "kind", names, &index, error);
    if (!status && index >= 0)
        *kind = kinds[index];
    return status;
}

static enum status read_rule(struct matrix_rules *r, const struct yaml_node *node,
                             const struct matrix_scope *scope, struct error *error)
{
    static const char *const keys[] = {"when", "reason", "kind", NULL};
    const struct yaml_node *when, *reason;
    enum status status = read_item(node, keys, &when, "reason", &reason, error);
    if (status)
        return status;
    struct matrix_rule *rule = &r->rules[r->rule_count++];
    status = yaml_get_text(node, "reason", &rule->reason, error);
    if (!status)
        status = read_kind(node, &rule->kind, error);
    return status ? status : read_when(scope, when, &rule->when, error);
}

static enum status read_rules(struct matrix_rules *r, const struct yaml_node *root,
                              const struct matrix_scope *scope, struct error *error)
{
    const struct yaml_node *list = NULL;
    enum status status = yaml_get(root, "exclude", YAML_LIST, &list, error);
    if (status || !list)
        return status;
    r->rules = make_room(yaml_count(list), sizeof(*r->rules), error);
    if (!r->rules)
        return STATUS_RESOURCE_EXHAUSTED;
    for (const struct yaml_node *n = yaml_first(list); n && !status; n = yaml_next(n))
        status = read_rule(r, n, scope, error);
    return status;
}

// ---- subsets ----------------------------------------------------------------------------------

static enum status read_subset(struct matrix_rules *r, const struct yaml_node *node,
                               const struct matrix_scope *scope, struct error *error)
{
    bool several = yaml_kind(node) == YAML_LIST;
    enum status status = matrix_check_name(node, "a subset", error);
    if (!status && several && yaml_count(node) == 0)
        status = yaml_expected(node, error, "at least one map of conditions");
    if (status)
        return status;
    struct matrix_subset *subset = &r->subsets[r->subset_count++];
    subset->name = yaml_key(node);
    subset->filters = make_room(several ? yaml_count(node) : 1, sizeof(*subset->filters), error);
    if (!subset->filters)
        return STATUS_RESOURCE_EXHAUSTED;
    for (const struct yaml_node *n = several ? yaml_first(node) : node; n && !status;
         n = several ? yaml_next(n) : NULL)
        status = read_when(scope, n, &subset->filters[subset->count++], error);
    return status;
}

static enum status read_subsets(struct matrix_rules *r, const struct yaml_node *root,
                                const struct matrix_scope *scope, struct error *error)
{
    const struct yaml_node *map = NULL;
    enum status status = yaml_get(root, "subsets", YAML_MAP, &map, error);
    if (status || !map)
        return status;
    r->subsets = make_room(yaml_count(map), sizeof(*r->subsets), error);
    if (!r->subsets)
        return STATUS_RESOURCE_EXHAUSTED;
    for (const struct yaml_node *n = yaml_first(map); n && !status; n = yaml_next(n))
        status = read_subset(r, n, scope, error);
    return status;
}

// ---- all rules --------------------------------------------------------------------------------

enum status matrix_rules_read(struct matrix_rules *r, const struct yaml_node *root,
                              const struct matrix_scope *scope, struct error *error)
{
    enum status status = read_changes(r, root, scope, error);
    if (!status)
        status = read_rules(r, root, scope, error);
    return status ? status : read_subsets(r, root, scope, error);
}

static void subset_fini(struct matrix_subset *subset)
{
    for (int i = 0; i < subset->count; i++)
        filter_fini(&subset->filters[i]);
    free(subset->filters);
}

void matrix_rules_fini(struct matrix_rules *r)
{
    for (int i = 0; i < r->change_count; i++)
        filter_fini(&r->changes[i].when);
    for (int i = 0; i < r->rule_count; i++)
        filter_fini(&r->rules[i].when);
    for (int i = 0; i < r->subset_count; i++)
        subset_fini(&r->subsets[i]);
    free(r->changes);
    free(r->rules);
    free(r->subsets);
}
