// SPDX-License-Identifier: Apache-2.0
// Implements the cases and fields of cpattn.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "plan/members.h"
#include "plan/minimize.h"

struct cpattn_case *cpattn_case_create(void)
{
    struct cpattn_case *c = malloc(sizeof *c);
    if (!c)
        return NULL;
    case_init(&c->plain);
    c->kv_heads_given = false;
    c->is_job = false;
    return c;
}

struct cpattn_case *cpattn_case_copy(const struct cpattn_case *c)
{
    struct cpattn_case *copy = malloc(sizeof *copy);
    if (copy)
        *copy = *c;
    return copy;
}

void cpattn_case_destroy(struct cpattn_case *c)
{
    free(c);
}

// ---- jobs of other kinds: the daemon knows their fields ----

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

struct cpattn_case *cpattn_case_create_kind(const char *kind)
{
    struct cpattn_case *c;
    if (!kind || !kind[0] || strlen(kind) >= KIND_NAME_MAX || !is_printable(kind))
        return NULL;
    c = cpattn_case_create();
    if (!c || strcmp(kind, job_kind_attention.name) == 0)
        return c;
    c->is_job = true;
    memset(&c->job, 0, sizeof c->job);
    memcpy(c->job.kind, kind, strlen(kind));
    return c;
}

const char *cpattn_case_kind(const struct cpattn_case *c)
{
    return c->is_job ? c->job.kind : job_kind_attention.name;
}

static struct job_field *field_of(const struct job_text *job, const char *name)
{
    for (int i = 0; i < job->field_count; i++)
        if (members_name_is(name, job->fields[i].name))
            return (struct job_field *)(uintptr_t)&job->fields[i];
    return NULL;
}

static enum status job_set(struct job_text *job, const char *name, const char *value,
                           struct error *error)
{
    struct job_field *field = field_of(job, name);
    if (!name[0] || strlen(name) >= JOB_FIELD_NAME_MAX || !is_printable(name))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the name of a field has %zu characters; accepted are 1 to %d, printable",
                         strlen(name), JOB_FIELD_NAME_MAX - 1);
    if (strlen(value) >= JOB_FIELD_VALUE_MAX || !is_printable(value))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s has %zu characters; accepted are up to %d, printable", name,
                         strlen(value), JOB_FIELD_VALUE_MAX - 1);
    if (!field && job->field_count == JOB_FIELDS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "a job has up to %d fields",
                         JOB_FIELDS_MAX);
    if (!field)
        field = &job->fields[job->field_count++];
    snprintf(field->name, sizeof field->name, "%s", name);
    for (char *c = field->name; *c; c++)
        *c = *c == '-' ? '_' : *c;
    snprintf(field->value, sizeof field->value, "%s", value);
    return STATUS_OK;
}

// Checks the fields of a job if the library knows its kind. The daemon checks all jobs.
static enum status job_check(const struct job_text *job, struct error *error)
{
    struct job_spec spec;
    return job_kind_find(job->kind) ? job_spec_parse(&spec, job, error) : STATUS_OK;
}

static int job_line(const struct job_text *job, bool command, char *text, size_t size)
{
    struct error ignored;
    struct job_spec spec;
    if (job_kind_find(job->kind) && job_spec_parse(&spec, job, &ignored) == STATUS_OK)
        return command ? job_spec_command(&spec, text, size) : job_spec_describe(&spec, text, size);
    int length = snprintf(text, size, "%s%s", command ? "cpattn-submit " : "", job->kind);
    for (int i = 0; i < job->field_count; i++) {
        bool room = (size_t)length < size;
        length +=
            snprintf(room ? text + length : NULL, room ? size - (size_t)length : 0,
                     command ? " --%s %s" : " %s=%s", job->fields[i].name, job->fields[i].value);
    }
    return length;
}

// ---- public functions ----

enum cpattn_status cpattn_case_set(struct cpattn_case *c, const char *name, const char *value,
                                   struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    if (c->is_job)
        return client_status(job_set(&c->job, name, value, &inner), &inner, error);
    enum status status = case_set(&c->plain, name, value, &inner);
    if (status == STATUS_OK && case_field_find(name) == case_field_find("kv_heads"))
        c->kv_heads_given = true;
    if (!c->kv_heads_given)
        c->plain.kv_heads = c->plain.heads;
    return client_status(status, &inner, error);
}

int cpattn_case_get(const struct cpattn_case *c, const char *name, char *text, size_t size)
{
    const struct case_field *field = case_field_find(name);
    const struct job_field *given = c->is_job ? field_of(&c->job, name) : NULL;
    if (c->is_job)
        return given ? snprintf(text, size, "%s", given->value) : -1;
    return field ? case_get(&c->plain, field, text, size) : -1;
}

enum cpattn_status cpattn_case_check(const struct cpattn_case *c, struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    enum status status = c->is_job ? job_check(&c->job, &inner) : case_check(&c->plain, &inner);
    return client_status(status, &inner, error);
}

int cpattn_case_describe(const struct cpattn_case *c, char *text, size_t size)
{
    return c->is_job ? job_line(&c->job, false, text, size) : case_describe(&c->plain, text, size);
}

int cpattn_case_command(const struct cpattn_case *c, char *text, size_t size)
{
    return c->is_job ? job_line(&c->job, true, text, size) : case_command(&c->plain, text, size);
}

// ---- fields -------------------------------------------------------------------------------------

// A struct cpattn_field is an entry of the internal table of fields under another type.
static const struct cpattn_field *field_public(const struct case_field *field)
{
    return field && field->name ? (const struct cpattn_field *)(const void *)field : NULL;
}

static const struct case_field *field_plain(const struct cpattn_field *field)
{
    return (const struct case_field *)(const void *)field;
}

const struct cpattn_field *cpattn_field_next(const struct cpattn_field *field)
{
    return field_public(field ? field_plain(field) + 1 : case_fields());
}

const struct cpattn_field *cpattn_field_find(const char *name)
{
    return field_public(case_field_find(name));
}

const char *cpattn_field_name(const struct cpattn_field *field)
{
    return field_plain(field)->name;
}

const char *cpattn_field_help(const struct cpattn_field *field)
{
    return field_plain(field)->help;
}

enum cpattn_field_kind cpattn_field_kind(const struct cpattn_field *field)
{
    switch (field_plain(field)->kind) {
    case FIELD_TEXT:
        break;
    case FIELD_CHOICE:
        return CPATTN_FIELD_CHOICE;
    case FIELD_INT:
        return CPATTN_FIELD_INT;
    case FIELD_UINT:
        return CPATTN_FIELD_UINT;
    case FIELD_REAL:
        return CPATTN_FIELD_REAL;
    case FIELD_BOOL:
        return CPATTN_FIELD_BOOL;
    case FIELD_LIST:
        return CPATTN_FIELD_LIST;
    }
    return CPATTN_FIELD_TEXT;
}

int64_t cpattn_field_min(const struct cpattn_field *field)
{
    return field_plain(field)->min;
}

int64_t cpattn_field_max(const struct cpattn_field *field)
{
    return field_plain(field)->max;
}

const char *cpattn_field_choice(const struct cpattn_field *field, int index)
{
    const struct case_choice *choice = field_plain(field)->choices;
    if (!choice || index < 0)
        return NULL;
    while (choice->name && index > 0) {
        choice++;
        index--;
    }
    return choice->name;
}

// ---- smaller cases ----

struct minimizing {
    bool (*fails)(const struct cpattn_case *c, void *context);
    void *context;
};

static bool plain_fails(const struct cp_case *plain, void *context)
{
    const struct minimizing *m = context;
    const struct cpattn_case c = {.plain = *plain, .kv_heads_given = true};
    return m->fails(&c, m->context);
}

int cpattn_case_minimize(struct cpattn_case *c,
                         bool (*fails)(const struct cpattn_case *c, void *context), void *context,
                         int tries)
{
    struct minimizing m = {fails, context};
    if (c->is_job)
        return 0;
    c->kv_heads_given = true;
    return minimize_case(&c->plain, plain_fails, &m, tries);
}
