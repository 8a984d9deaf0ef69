// SPDX-License-Identifier: Apache-2.0
// A case as one line for people and as the command that reproduces it.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan/case.h"

// A text of bounded size under construction; `length` counts what did not fit, too, as snprintf
// does.
struct line {
    char *text;
    size_t size;
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void line_add(struct line *line, const char *format,
                                                           ...)
{
    bool room = line->length < line->size;
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(room ? line->text + line->length : NULL,
                          room ? line->size - line->length : 0, format, arguments);
    va_end(arguments);
    line->length += added > 0 ? (size_t)added : 0;
}

static void add_shape(struct line *line, const struct cp_case *c)
{
    line_add(line, " b%d h%d", c->batch, c->heads);
    if (c->kv_heads != c->heads)
        line_add(line, "/%d", c->kv_heads);
    line_add(line, " s%lld", (long long)c->seqlen_q);
    if (c->seqlen_kv != c->seqlen_q)
        line_add(line, "/%lld", (long long)c->seqlen_kv);
    line_add(line, " d%d", c->head_dim_qk);
    if (c->head_dim_v != c->head_dim_qk)
        line_add(line, "/%d", c->head_dim_v);
}

static void add_mask(struct line *line, const struct cp_case *c)
{
    line_add(line, " %s",
             c->mask == MASK_NONE ? "full" : case_choice_name(case_mask_choices, c->mask));
    if (c->window_left != WINDOW_UNBOUNDED || c->window_right > 0)
        line_add(line, " window(%lld,%lld)", (long long)c->window_left, (long long)c->window_right);
}

// What most cases have in common is left out.
static void add_unusual(struct line *line, const struct cp_case *c)
{
    struct cp_case usual;
    case_init(&usual);
    if (c->a2a_size != usual.a2a_size)
        line_add(line, " a2a=%d", c->a2a_size);
    if (c->sharding != usual.sharding)
        line_add(line, " %s", case_choice_name(case_sharding_choices, c->sharding));
    if (c->scale != usual.scale)
        line_add(line, " scale=%g", c->scale);
    if (!c->training)
        line_add(line, " forward");
    if (c->inputs != usual.inputs)
        line_add(line, " inputs=%s", case_choice_name(case_inputs_choices, c->inputs));
    if (c->seed != usual.seed)
        line_add(line, " seed=%llu", (unsigned long long)c->seed);
    if (c->explore_seed != usual.explore_seed)
        line_add(line, " explore=%llu", (unsigned long long)c->explore_seed);
}

int case_describe(const struct cp_case *c, char *text, size_t size)
{
    struct line line = {.text = text, .size = size};
    if (c->model[0])
        line_add(&line, "%.*s ", MODEL_NAME_MAX, c->model);
    line_add(&line, "%s %s %s w%d", case_choice_name(case_dtype_choices, c->dtype),
             case_choice_name(case_format_choices, c->format),
             case_choice_name(case_comm_choices, c->comm), c->world_size);
    add_shape(&line, c);
    add_mask(&line, c);
    add_unusual(&line, c);
    return (int)line.length;
}

// The value as one word of a POSIX shell.
static void add_word(struct line *line, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+";
    if (word[0] && !word[strspn(word, plain)]) {
        line_add(line, " %s", word);
        return;
    }
    line_add(line, " '");
    for (; *word; word++)
        line_add(line, *word == '\'' ? "'\\''" : "%c", *word);
    line_add(line, "'");
}

static void add_option(struct line *line, const char *name)
{
    line_add(line, " --");
    for (; *name; name++)
        line_add(line, "%c", *name == '_' ? '-' : *name);
}

int case_command(const struct cp_case *c, char *text, size_t size)
{
    struct cp_case usual;
    case_init(&usual);
    struct line line = {.text = text, .size = size};
    line_add(&line, "cpattn-submit case");
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char value[MODEL_NAME_MAX + 1], usual_value[MODEL_NAME_MAX + 1];
        case_get(c, field, value, sizeof value);
        case_get(&usual, field, usual_value, sizeof usual_value);
        if (strcmp(value, usual_value) == 0)
            continue;
        add_option(&line, field->name);
        add_word(&line, value);
    }
    return (int)line.length;
}
