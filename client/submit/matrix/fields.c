// SPDX-License-Identifier: Apache-2.0
#include "client/submit/matrix/fields.h"

#include <stdio.h>
#include <stdlib.h>
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
    {"count", "n"},      {"size", ""},           {"root", "root"},
    {"offset", "at"},    {"nodes", "nodes"},     {"ranks_per_node", "per"},
};

void fields_case_init(struct cp_case *c)
{
    case_init(c);
    c->kv_heads = FIELDS_FOLLOW;
}

void fields_case_finish(struct cp_case *c)
{
    if (c->kv_heads == FIELDS_FOLLOW)
        c->kv_heads = c->heads;
}

static bool is_case(const struct job_kind *kind)
{
    return kind == &job_kind_attention;
}

void fields_init(struct job_spec *spec, const struct job_kind *kind)
{
    job_spec_init(spec, kind);
    if (is_case(kind))
        fields_case_init(&spec->attention);
}

void fields_finish(struct job_spec *spec)
{
    if (is_case(spec->kind))
        fields_case_finish(&spec->attention);
    else if (spec->kind->finish)
        spec->kind->finish(spec->bytes);
}

static uint64_t field_mask(const struct job_kind *kind, const char *name)
{
    const struct case_field *field = job_kind_field(kind, name);
    return field ? UINT64_C(1) << (field - job_kind_fields(kind)) : 0;
}

uint64_t fields_mask(const struct job_kind *kind, const char *name)
{
    const struct case_pair *pair = job_kind_pair(kind, name);
    return pair ? field_mask(kind, pair->members[0]) | field_mask(kind, pair->members[1])
                : field_mask(kind, name);
}

const char *fields_first(const struct job_kind *kind, uint64_t mask)
{
    return job_kind_fields(kind)[__builtin_ctzll(mask)].name;
}

// Writes a multiple of 1024 with a suffix, as options accept it: "64k" for 65536.
static void shorten(char *value, size_t size)
{
    static const char units[] = " kmg";
    unsigned long long number = strtoull(value, NULL, 10);
    int unit = 0;
    while (number > 0 && number % 1024 == 0 && unit < 3) {
        number /= 1024;
        unit++;
    }
    if (unit > 0)
        snprintf(value, size, "%llu%c", number, units[unit]);
}

int fields_label(const struct job_spec *spec, const char *name, char *text, size_t size)
{
    const struct case_field *fields = job_kind_fields(spec->kind);
    const struct case_field *field = &fields[__builtin_ctzll(fields_mask(spec->kind, name))];
    char value[CASE_VALUE_MAX];
    job_spec_get(spec, field, value, sizeof(value));
    if (!is_case(spec->kind) && field->kind == FIELD_INT)
        shorten(value, sizeof(value));
    if (field->kind == FIELD_CHOICE || field->kind == FIELD_TEXT)
        return snprintf(text, size, "%s", value);
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++)
        if (strcmp(letters[i].name, name) == 0)
            return snprintf(text, size, "%s%s", letters[i].letters, value);
    return snprintf(text, size, "%s=%s", name, value);
}
