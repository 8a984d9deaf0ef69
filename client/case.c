// SPDX-License-Identifier: Apache-2.0
// Cases and their fields, as the installed header has them.
#include <stdlib.h>

#include "client/client.h"

struct cpattn_case *cpattn_case_create(void)
{
    struct cpattn_case *c = malloc(sizeof *c);
    if (!c)
        return NULL;
    case_init(&c->plain);
    c->kv_heads_given = false;
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

enum cpattn_status cpattn_case_set(struct cpattn_case *c, const char *name, const char *value,
                                   struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
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
    return field ? case_get(&c->plain, field, text, size) : -1;
}

enum cpattn_status cpattn_case_check(const struct cpattn_case *c, struct cpattn_error *error)
{
    struct error inner = {.status = STATUS_OK};
    return client_status(case_check(&c->plain, &inner), &inner, error);
}

int cpattn_case_describe(const struct cpattn_case *c, char *text, size_t size)
{
    return case_describe(&c->plain, text, size);
}

int cpattn_case_command(const struct cpattn_case *c, char *text, size_t size)
{
    return case_command(&c->plain, text, size);
}

// ---- fields -------------------------------------------------------------------------------------

// A field of the public header is one of the table inside, under a name that tells nothing of it.
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
