// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/sweep.h"

#include <stdlib.h>
#include <string.h>

void sweep_fini(struct sweep *sweep)
{
    for (int i = 0; i < sweep->count; i++)
        free(sweep->fields[i].text);
    sweep->count = 0;
}

bool sweep_is_meant(const struct sweep *sweep, const char *name, const char *value)
{
    const struct case_field *field = job_kind_field(sweep->kind, name);
    bool single = job_kind_pair(sweep->kind, name) ||
                  (field && field->kind != FIELD_LIST && field->kind != FIELD_TEXT);
    return single && strchr(value, ',');
}

int sweep_points(const struct sweep *sweep)
{
    int points = 1;
    for (int i = 0; i < sweep->count; i++)
        points *= sweep->fields[i].count;
    return points;
}

static enum status value_add(const struct sweep *sweep, struct sweep_field *field,
                             const char *value, struct error *error)
{
    struct job_spec tried;
    job_spec_init(&tried, sweep->kind);
    if (field->count == SWEEP_VALUES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "--%s has more than %d values",
                         field->name, SWEEP_VALUES_MAX);
    field->values[field->count++] = value;
    return job_spec_set(&tried, field->name, value, error);
}

enum status sweep_add(struct sweep *sweep, const char *name, const char *value, struct error *error)
{
    for (int i = 0; i < sweep->count; i++)
        if (strcmp(sweep->fields[i].name, name) == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT, "--%s is given twice", name);
    if (sweep->count == SWEEP_FIELDS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d options have several values",
                         SWEEP_FIELDS_MAX);
    struct sweep_field *field = &sweep->fields[sweep->count];
    *field = (struct sweep_field){.name = name, .text = strdup(value)};
    if (!field->text)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "not enough memory for --%s", name);
    sweep->count++;
    enum status status = STATUS_OK;
    char *rest = field->text;
    for (char *one; !status && (one = strsep(&rest, ","));)
        status = value_add(sweep, field, one, error);
    if (!status && sweep_points(sweep) > SWEEP_POINTS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "these options make %d cases; "
                         "accepted are %d",
                         sweep_points(sweep), SWEEP_POINTS_MAX);
    return status;
}

const char *sweep_value(const struct sweep *sweep, int point, int field)
{
    for (int i = sweep->count - 1; i > field; i--)
        point /= sweep->fields[i].count;
    return sweep->fields[field].values[point % sweep->fields[field].count];
}

void sweep_apply(const struct sweep *sweep, int point, struct job_spec *spec)
{
    for (int i = 0; i < sweep->count; i++)
        (void)!job_spec_set(spec, sweep->fields[i].name, sweep_value(sweep, point, i), NULL);
}
