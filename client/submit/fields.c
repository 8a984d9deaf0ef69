// SPDX-License-Identifier: Apache-2.0
#include "client/submit/fields.h"

#include <stdio.h>
#include <string.h>

#include "common/nearest.h"

static const struct fields_pair pairs[] = {
    {"seqlen", {"seqlen_q", "seqlen_kv"}, "seqlen_q and seqlen_kv at once"},
    {"head_dim", {"head_dim_qk", "head_dim_v"}, "head_dim_qk and head_dim_v at once"},
    {NULL, {NULL}, NULL},
};

static const struct letter {
    const char *name, *letters;
} letters[] = {
    {"world_size", "w"}, {"batch", "b"},         {"heads", "h"},
    {"kv_heads", "kv"},  {"head_dim_qk", "d"},   {"head_dim_v", "dv"},
    {"head_dim", "d"},   {"seqlen_q", "s"},      {"seqlen_kv", "skv"},
    {"seqlen", "s"},     {"seed", "seed"},       {"explore_seed", "explore"},
    {"a2a_size", "a"},   {"lengths_q", "len"},   {"lengths_kv", "lenkv"},
    {"padded_q", "pad"}, {"padded_kv", "padkv"}, {"pad_multiple", "padto"},
};

const struct fields_pair *fields_pairs(void)
{
    return pairs;
}

static const struct fields_pair *pair_find(const char *name)
{
    for (const struct fields_pair *p = pairs; p->name; p++) {
        size_t i = 0;
        while (p->name[i] && (name[i] == '-' ? '_' : name[i]) == p->name[i])
            i++;
        if (!p->name[i] && !name[i])
            return p;
    }
    return NULL;
}

// The pair that is meant by a name that is nothing, or NULL where none is as near as a field.
static const char *nearest_pair(const char *name)
{
    struct nearest nearest;
    nearest_init(&nearest, name);
    for (const struct case_field *field = case_fields(); field->name; field++)
        nearest_offer(&nearest, field->name);
    for (const struct fields_pair *p = pairs; p->name; p++)
        nearest_offer(&nearest, p->name);
    return nearest.name && pair_find(nearest.name) ? nearest.name : NULL;
}

// case_set() refuses it in its words, but knows no pair.
static enum status refuse_name(struct cp_case *c, const char *name, struct error *error)
{
    enum status status = case_set(c, name, "", error);
    const char *pair = nearest_pair(name);
    if (error && pair) {
        char *hint = strstr(error->text, " (did you mean");
        return error_set(error, status, "%.*s (did you mean '%s'?)",
                         hint ? (int)(hint - error->text) : (int)strlen(error->text), error->text,
                         pair);
    }
    return status;
}

enum status fields_set(struct cp_case *c, const char *name, const char *value, struct error *error)
{
    const struct fields_pair *pair = pair_find(name);
    if (!pair && !case_field_find(name))
        return refuse_name(c, name, error);
    if (!pair)
        return case_set(c, name, value, error);
    struct cp_case changed = *c;
    enum status status = STATUS_OK;
    for (int i = 0; i < FIELDS_PAIR && !status; i++)
        status = case_set(&changed, pair->members[i], value, error);
    if (!status)
        *c = changed;
    return status;
}

static uint64_t field_mask(const char *name)
{
    const struct case_field *field = case_field_find(name);
    return field ? UINT64_C(1) << (field - case_fields()) : 0;
}

uint64_t fields_mask(const char *name)
{
    const struct fields_pair *pair = pair_find(name);
    return pair ? field_mask(pair->members[0]) | field_mask(pair->members[1]) : field_mask(name);
}

const char *fields_first(uint64_t mask)
{
    return case_fields()[__builtin_ctzll(mask)].name;
}

int fields_label(const struct cp_case *c, const char *name, char *text, size_t size)
{
    const struct case_field *field = &case_fields()[__builtin_ctzll(fields_mask(name))];
    char value[CASE_VALUE_MAX];
    case_get(c, field, value, sizeof(value));
    if (field->kind == FIELD_CHOICE || field->kind == FIELD_TEXT)
        return snprintf(text, size, "%s", value);
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
        if (strcmp(letters[i].name, name) == 0)
            return snprintf(text, size, "%s%s", letters[i].letters, value);
    return snprintf(text, size, "%s=%s", name, value);
}
