// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/matrix_fields.h"

#include <stdio.h>
#include <string.h>

#include "client/submit/matrix/fields.h"

enum status matrix_unknown_field(const struct yaml_node *node, const struct job_kind *kind,
                                 const char *name, struct error *error)
{
    struct job_spec spec;
    struct error why = {.text = ""};
    job_spec_init(&spec, kind);
    (void)!job_spec_set(&spec, name, "", &why);
    return yaml_error_key(node, error, "%s", why.text);
}

// Writes the items of a list of the file as the text that sets a list field: "1,2,3".
static enum status list_text(const struct yaml_node *list, char text[CASE_VALUE_MAX],
                             struct error *error)
{
    size_t used = 0;
    text[0] = '\0';
    for (const struct yaml_node *n = yaml_first(list); n; n = yaml_next(n)) {
        enum status status = yaml_is(n, YAML_SCALAR, error);
        if (status)
            return status;
        size_t length = strlen(yaml_text(n));
        if (length == 0 || strchr(yaml_text(n), ','))
            return yaml_expected(n, error, "a number");
        if (used + length + 2 > CASE_VALUE_MAX)
            return yaml_expected(list, error, "at most %d numbers", SEQUENCES_MAX);
        used += (size_t)sprintf(text + used, "%s%s", used > 0 ? "," : "", yaml_text(n));
    }
    return STATUS_OK;
}

static bool is_list_field(const struct job_kind *kind, const char *name)
{
    const struct case_field *field = job_kind_field(kind, name);
    return field && field->kind == FIELD_LIST;
}

enum status matrix_field_apply(const struct yaml_node *node, const char *name,
                               struct job_spec *spec, struct error *error)
{
    if (fields_mask(spec->kind, name) == 0)
        return matrix_unknown_field(node, spec->kind, name, error);
    char room[CASE_VALUE_MAX];
    bool list = is_list_field(spec->kind, name) && yaml_kind(node) == YAML_LIST;
    enum status status = list ? list_text(node, room, error) : yaml_is(node, YAML_SCALAR, error);
    if (status)
        return status;
    struct error why;
    if (job_spec_set(spec, name, list ? room : yaml_text(node), &why))
        return yaml_error(node, error, "%s", why.text);
    return STATUS_OK;
}

enum status matrix_fields_apply(const struct yaml_node *map, struct job_spec *spec, uint64_t *mask,
                                struct error *error)
{
    enum status status = yaml_is(map, YAML_MAP, error);
    uint64_t seen = 0;
    for (const struct yaml_node *n = yaml_first(map); n && !status; n = yaml_next(n)) {
        uint64_t sets = fields_mask(spec->kind, yaml_key(n));
        if (sets & seen)
            return yaml_error_key(n, error, "'%s' sets %s once more", yaml_key(n),
                                  fields_first(spec->kind, sets & seen));
        seen |= sets;
        status = matrix_field_apply(n, yaml_key(n), spec, error);
    }
    *mask = seen;
    return status;
}

// ---- axes -------------------------------------------------------------------------------------

enum status matrix_check_name(const struct yaml_node *node, const char *what, struct error *error)
{
    static const char characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-";
    size_t length = strlen(yaml_key(node));
    if (length > 0 && length < MATRIX_LABEL_MAX && strspn(yaml_key(node), characters) == length)
        return STATUS_OK;
    return yaml_error_key(node, error,
                          "'%.80s' is no name for %s; names are 1 to %d letters, digits and _.+-",
                          yaml_key(node), what, MATRIX_LABEL_MAX - 1);
}
