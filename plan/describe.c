// SPDX-License-Identifier: Apache-2.0
// A case as one line for people and as the command that reproduces it.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/shell_word.h"
#include "plan/case.h"

// A text of bounded size under construction. `length` includes what did not fit, as with snprintf.
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

// A list of up to this many numbers is shown whole; a longer one as its first numbers, count and
// sum.
#define LIST_TOLD_MAX 8

static void add_list(struct line *line, const struct cp_case *c, enum case_list list,
                     const char *name)
{
    int32_t count;
    const int32_t *values = case_list(c, list, &count);
    int32_t told = count <= LIST_TOLD_MAX ? count : LIST_TOLD_MAX - 2;
    int64_t sum = 0;
    if (count == 0)
        return;
    line_add(line, " %s[", name);
    for (int32_t i = 0; i < count; i++) {
        sum += values[i];
        if (i < told)
            line_add(line, i > 0 ? ",%d" : "%d", values[i]);
    }
    if (told < count)
        line_add(line, ",... %d of %lld", count, (long long)sum);
    line_add(line, "]");
}

static void add_lengths(struct line *line, const struct cp_case *c)
{
    add_list(line, c, LIST_LENGTHS_Q, "lengths");
    add_list(line, c, LIST_LENGTHS_KV, "lengths_kv");
    add_list(line, c, LIST_PADDED_Q, "padded");
    add_list(line, c, LIST_PADDED_KV, "padded_kv");
    if (c->pad_multiple != 1)
        line_add(line, " pad%d", c->pad_multiple);
}

static void add_scores(struct line *line, const struct cp_case *c, const struct cp_case *usual)
{
    if (c->scale != usual->scale)
        line_add(line, " scale=%g", c->scale);
    if (c->softcap != usual->softcap)
        line_add(line, " softcap=%g", c->softcap);
    if (c->softmax != usual->softmax)
        line_add(line, " %s", case_choice_name(case_softmax_choices, c->softmax));
    if (c->bias != usual->bias)
        line_add(line, " bias=%s", case_choice_name(case_bias_choices, c->bias));
    if (c->max_logit)
        line_add(line, " max_logit");
    if (c->lse_tolerance != 0)
        line_add(line, " lse_tolerance=%g", c->lse_tolerance);
}

static void add_mask(struct line *line, const struct cp_case *c)
{
    bool causal = case_is_causal(c);
    line_add(line, " %s", causal ? case_choice_name(case_mask_choices, (int)c->mask) : "full");
    if (case_has_window(c))
        line_add(line, " window(%lld,%lld)", (long long)c->window_left, (long long)c->window_right);
    if (case_has_window(c) && c->mask == MASK_NONE_BOTTOM_RIGHT)
        line_add(line, " bottom_right");
}

// Adds the fields that differ from the defaults.
static void add_unusual(struct line *line, const struct cp_case *c)
{
    struct cp_case usual;
    case_init(&usual);
    if (c->implementation[0])
        line_add(line, " by %s", c->implementation);
    if (c->a2a_size != usual.a2a_size)
        line_add(line, " a2a=%d", c->a2a_size);
    if (c->nodes)
        line_add(line, " nodes=%d", c->nodes);
    if (c->ranks_per_node)
        line_add(line, " per_node=%d", c->ranks_per_node);
    if (c->sharding != usual.sharding)
        line_add(line, " %s", case_choice_name(case_sharding_choices, c->sharding));
    add_scores(line, c, &usual);
    if (c->provider[0])
        line_add(line, " provider=%s%s", c->provider, c->provider_fallback ? "+own" : "");
    if (c->graph)
        line_add(line, " graph");
    if (c->operation_times)
        line_add(line, " times");
    if (!c->training)
        line_add(line, " forward");
    if (!c->deterministic)
        line_add(line, " nondeterministic");
    if (c->verify != usual.verify)
        line_add(line, " verify=%s", case_choice_name(case_verify_choices, (int)c->verify));
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
    add_lengths(&line, c);
    add_mask(&line, c);
    add_unusual(&line, c);
    return (int)line.length;
}

static void add_word(struct line *line, const char *word)
{
    line_add(line, " ");
    bool room = line->length < line->size;
    line->length += shell_word(word, room ? line->text + line->length : NULL,
                               room ? line->size - line->length : 0);
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
    usual.kv_heads = c->heads; // the command's default
    struct line line = {.text = text, .size = size};
    line_add(&line, "cpattn-submit case");
    for (const struct case_field *field = case_fields(); field->name; field++) {
        char value[CASE_VALUE_MAX], usual_value[CASE_VALUE_MAX];
        case_get(c, field, value, sizeof value);
        case_get(&usual, field, usual_value, sizeof usual_value);
        if (strcmp(value, usual_value) == 0)
            continue;
        add_option(&line, field->name);
        add_word(&line, value);
    }
    return (int)line.length;
}
