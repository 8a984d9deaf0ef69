// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/submit/matrix/fields.h"
#include "client/submit/matrix/matrix_fields.h"
#include "client/submit/outcome/text.h"

static enum status no_memory(struct error *error)
{
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for the matrix");
}

static void *array(int count, size_t size)
{
    return calloc(count > 0 ? (size_t)count : 1, size);
}

void matrix_value_apply(const struct matrix_value *value, struct job_spec *spec)
{
    struct error none;
    if (value->text)
        (void)!job_spec_set(spec, value->field, value->text, NULL);
    if (value->node)
        (void)!matrix_field_apply(value->node, value->field, spec, &none);
    uint64_t mask;
    if (value->fields)
        (void)!matrix_fields_apply(value->fields, spec, &mask, &none);
}

// Starts an axis for the values of `node`.
static enum status axis_add(struct matrix *m, const struct yaml_node *node, const char *name,
                            struct matrix_axis **axis, struct error *error)
{
    if (m->axis_count == MATRIX_AXES_MAX)
        return yaml_error_key(node, error, "more than %d axes", MATRIX_AXES_MAX);
    if (yaml_count(node) == 0)
        return yaml_expected(node, error, "at least one value");
    struct matrix_axis *added = &m->axes[m->axis_count];
    added->values = array(yaml_count(node), sizeof(*added->values));
    if (!added->values)
        return no_memory(error);
    m->axis_count++;
    added->name = name;
    *axis = added;
    return STATUS_OK;
}

static enum status value_add(struct matrix_axis *axis, const struct yaml_node *node,
                             const struct matrix_value *value, struct error *error)
{
    for (int i = 0; i < axis->count; i++)
        if (strcmp(axis->values[i].label, value->label) == 0)
            return yaml_error(node, error, "'%s' occurs twice in axis '%s'", value->label,
                              axis->name);
    axis->values[axis->count++] = *value;
    return STATUS_OK;
}

// Adds the named value that `bundle` describes; `node` is where the file asks for it.
static enum status bundle_add(struct matrix *m, struct matrix_axis *axis,
                              const struct yaml_node *node, const struct yaml_node *bundle,
                              struct error *error)
{
    struct job_spec spec = m->defaults;
    struct matrix_value value = {.fields = bundle};
    uint64_t mask = 0;
    enum status status = matrix_check_name(bundle, "a value of an axis", error);
    if (!status)
        status = matrix_fields_apply(bundle, &spec, &mask, error);
    if (status)
        return status;
    axis->mask |= mask;
    strcpy(value.label, yaml_key(bundle));
    return value_add(axis, node, &value, error);
}

// An axis whose values are a map of name to fields.
static enum status read_bundles(struct matrix *m, const struct yaml_node *map, const char *name,
                                struct error *error)
{
    struct matrix_axis *axis = NULL;
    enum status status = axis_add(m, map, name, &axis, error);
    if (!axis)
        return status;
    axis->bundles = map;
    for (const struct yaml_node *n = yaml_first(map); n && !status; n = yaml_next(n))
        status = bundle_add(m, axis, n, n, error);
    return status;
}

// `model:` among the axes: a list that says which models, and in which order.
static enum status read_model_list(struct matrix *m, const struct yaml_node *models,
                                   const struct yaml_node *list, struct error *error)
{
    struct matrix_axis *axis = NULL;
    enum status status = yaml_is(list, YAML_LIST, error);
    if (!status)
        status = axis_add(m, list, "model", &axis, error);
    if (!axis)
        return status;
    axis->bundles = models;
    for (const struct yaml_node *n = yaml_first(list); n && !status; n = yaml_next(n)) {
        const struct yaml_node *model = yaml_text(n) ? yaml_find(models, yaml_text(n)) : NULL;
        if (!model)
            return yaml_expected(n, error, "the name of a model of this file");
        status = bundle_add(m, axis, n, model, error);
    }
    return status;
}

static enum status read_model_axis(struct matrix *m, const struct yaml_node *models,
                                   const struct yaml_node *node, struct error *error)
{
    if (!models)
        return yaml_error_key(node, error, "axis 'model' needs a map 'models' beside 'axes'");
    if (yaml_text(node) && strcmp(yaml_text(node), "all") == 0)
        return read_bundles(m, models, "model", error);
    return read_model_list(m, models, node, error);
}

static enum status value_label(const struct job_spec *spec, const struct yaml_node *node,
                               struct matrix_value *value, struct error *error)
{
    int length = fields_label(spec, value->field, value->label, sizeof(value->label));
    if ((size_t)length < sizeof(value->label))
        return STATUS_OK;
    return yaml_error(node, error,
                      "the value is longer than the %d characters that an id has for it; give it "
                      "a name in an axis with named values",
                      MATRIX_LABEL_MAX - 1);
}

// An axis whose values are a list of values of one field.
static enum status read_field_values(struct matrix *m, const struct yaml_node *list,
                                     struct error *error)
{
    struct matrix_axis *axis = NULL;
    enum status status = axis_add(m, list, yaml_key(list), &axis, error);
    if (!axis)
        return status;
    axis->mask = fields_mask(m->kind, axis->name);
    for (const struct yaml_node *n = yaml_first(list); n && !status; n = yaml_next(n)) {
        struct job_spec spec = m->defaults;
        struct matrix_value value = {.field = axis->name, .node = n};
        status = matrix_field_apply(n, axis->name, &spec, error);
        if (!status)
            status = value_label(&spec, n, &value, error);
        if (!status)
            status = value_add(axis, n, &value, error);
    }
    return status;
}

static enum status read_axis(struct matrix *m, const struct yaml_node *models,
                             const struct yaml_node *node, struct error *error)
{
    const char *name = yaml_key(node);
    if (strcmp(name, "model") == 0)
        return read_model_axis(m, models, node, error);
    if (fields_mask(m->kind, name)) {
        enum status status = yaml_is(node, YAML_LIST, error);
        return status ? status : read_field_values(m, node, error);
    }
    if (yaml_kind(node) != YAML_MAP)
        return matrix_unknown_field(node, m->kind, name, error);
    enum status status = matrix_check_name(node, "an axis", error);
    return status ? status : read_bundles(m, node, name, error);
}

// Refuses a field that two axes set, and a default that every value of an axis replaces: one of the
// two settings would have no effect. Named values (bundles) may set fields that have a default: not
// every bundle of an axis need set them.
static enum status check_overlap(const struct matrix *m, const struct yaml_node *axes,
                                 uint64_t defaults, struct error *error)
{
    const struct yaml_node *node = axes ? yaml_first(axes) : NULL;
    for (; node; node = yaml_next(node)) {
        const struct matrix_axis *axis = NULL, *other = NULL;
        for (int i = 0; i < m->axis_count && !axis; i++)
            if (strcmp(m->axes[i].name, yaml_key(node)) == 0)
                axis = &m->axes[i];
        for (int i = 0; i < m->axis_count && axis && !other; i++)
            if (&m->axes[i] != axis && (m->axes[i].mask & axis->mask))
                other = &m->axes[i];
        if (other)
            return yaml_error_key(node, error, "axis '%s' sets %s, which axis '%s' sets too",
                                  axis->name, fields_first(m->kind, axis->mask & other->mask),
                                  other->name);
        if (axis && !axis->bundles && (axis->mask & defaults))
            return yaml_error_key(node, error, "axis '%s' sets %s, which 'defaults' sets too",
                                  axis->name, fields_first(m->kind, axis->mask & defaults));
    }
    return STATUS_OK;
}

// Checks all models, so that a mistake is found in models that the axes leave out, too.
static enum status check_models(const struct matrix *m, const struct yaml_node *models,
                                struct error *error)
{
    enum status status = STATUS_OK;
    for (const struct yaml_node *n = yaml_first(models); n && !status; n = yaml_next(n)) {
        struct job_spec spec = m->defaults;
        uint64_t mask;
        status = matrix_check_name(n, "a model", error);
        if (!status)
            status = matrix_fields_apply(n, &spec, &mask, error);
    }
    return status;
}

static enum status read_axes(struct matrix *m, const struct yaml_node *root, uint64_t defaults,
                             struct error *error)
{
    const struct yaml_node *axes = NULL, *models = NULL;
    enum status status = yaml_get(root, "axes", YAML_MAP, &axes, error);
    if (!status)
        status = yaml_get(root, "models", YAML_MAP, &models, error);
    if (!status && models)
        status = check_models(m, models, error);
    if (!status && models && (!axes || !yaml_find(axes, "model")))
        status = read_bundles(m, models, "model", error);
    for (const struct yaml_node *n = axes ? yaml_first(axes) : NULL; n && !status; n = yaml_next(n))
        status = read_axis(m, models, n, error);
    if (!status && m->axis_count == 0)
        return yaml_error(root, error,
                          "neither 'models' nor 'axes' is given: there is no "
                          "case");
    return status ? status : check_overlap(m, axes, defaults, error);
}

// ---- names for filters ------------------------------------------------------------------------

// Collects the labels of named values for filters, also those of models that the axes leave out: a
// rule may name them.
static enum status names_create(struct matrix *m, struct error *error)
{
    for (int i = 0; i < m->axis_count; i++) {
        const struct yaml_node *bundles = m->axes[i].bundles;
        if (!bundles)
            continue;
        const char **labels = array(yaml_count(bundles), sizeof(*labels));
        if (!labels)
            return no_memory(error);
        int count = 0;
        for (const struct yaml_node *n = yaml_first(bundles); n; n = yaml_next(n))
            labels[count++] = yaml_key(n);
        m->names[m->name_count++] = (struct condition_names){
            .name = m->axes[i].name, .labels = labels, .label_count = count};
    }
    return STATUS_OK;
}

// ---- the file ---------------------------------------------------------------------------------

static enum status unknown_kind(const struct yaml_node *root, const char *name, struct error *error)
{
    char known[ERROR_TEXT_MAX / 2] = "";
    for (const struct job_kind *const *kind = job_kinds; *kind; kind++)
        text_append(known, sizeof(known), "%s%s", kind > job_kinds ? ", " : "", (*kind)->name);
    return yaml_error(yaml_find(root, "kind"), error, "'%.80s' is no kind of job; known: %s", name,
                      known);
}

static enum status read_kind(struct matrix *m, const struct yaml_node *root, struct error *error)
{
    const char *name = job_kind_attention.name;
    enum status status = yaml_get_text(root, "kind", &name, error);
    if (status)
        return status;
    m->kind = job_kind_find(name);
    if (!m->kind)
        return unknown_kind(root, name, error);
    fields_init(&m->defaults, m->kind);
    return STATUS_OK;
}

static enum status read_head(struct matrix *m, const struct yaml_node *root, uint64_t *mask,
                             struct error *error)
{
    static const char *const keys[] = {"title", "kind", "timeout", "defaults", "models",
                                       "axes",  "set",  "exclude", "subsets",  NULL};
    const struct yaml_node *defaults = NULL;
    *mask = 0;
    enum status status = yaml_is(root, YAML_MAP, error);
    if (status || (status = yaml_check_keys(root, keys, error)) ||
        (status = read_kind(m, root, error)) ||
        (status = yaml_get_text(root, "title", &m->title, error)) ||
        (status = yaml_get_duration(root, "timeout", 1, TIMEOUT_MAX_NS, &m->timeout_ns, error)) ||
        (status = yaml_get(root, "defaults", YAML_MAP, &defaults, error)))
        return status;
    return defaults ? matrix_fields_apply(defaults, &m->defaults, mask, error) : STATUS_OK;
}

static enum status read_rules(struct matrix *m, const struct yaml_node *root, struct error *error)
{
    const struct matrix_scope scope = {m->kind, m->names, m->name_count, &m->defaults};
    return matrix_rules_read(&m->rules, root, &scope, error);
}

enum status matrix_create(struct yaml *yaml, struct matrix **matrix, struct error *error)
{
    struct matrix *m = calloc(1, sizeof(*m));
    if (!m) {
        yaml_destroy(yaml);
        return no_memory(error);
    }
    m->yaml = yaml;
    const struct yaml_node *root = yaml_root(yaml);
    uint64_t defaults;
    enum status status;
    if ((status = read_head(m, root, &defaults, error)) ||
        (status = read_axes(m, root, defaults, error)) || (status = names_create(m, error)) ||
        (status = read_rules(m, root, error))) {
        matrix_destroy(m);
        return status;
    }
    *matrix = m;
    return STATUS_OK;
}

void matrix_destroy(struct matrix *matrix)
{
    if (!matrix)
        return;
    for (int i = 0; i < matrix->axis_count; i++)
        free(matrix->axes[i].values);
    for (int i = 0; i < matrix->name_count; i++)
        free((void *)matrix->names[i].labels);
    matrix_rules_fini(&matrix->rules);
    yaml_destroy(matrix->yaml);
    free(matrix);
}
