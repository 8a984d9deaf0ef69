// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/fields.h"

#include <stdio.h>
#include <string.h>

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

void fields_init(struct cp_case *c)
{
    case_init(c);
    c->kv_heads = FIELDS_FOLLOW;
}

void fields_finish(struct cp_case *c)
{
    if (c->kv_heads == FIELDS_FOLLOW)
        c->kv_heads = c->heads;
}

static uint64_t field_mask(const char *name)
{
    const struct case_field *field = case_field_find(name);
    return field ? UINT64_C(1) << (field - case_fields()) : 0;
}

uint64_t fields_mask(const char *name)
{
    const struct case_pair *pair = case_pair_find(name);
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
