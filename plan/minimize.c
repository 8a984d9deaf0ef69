// SPDX-License-Identifier: Apache-2.0
#include "plan/minimize.h"

#include <stdlib.h>
#include <string.h>

// Every step simplifies: a field gets its simplest value, a number decreases, a sequence or a list
// is removed. Therefore the search ends.

// ---- fields that depend on others ----

static void lists_fit(struct cp_case *c)
{
    int32_t values[SEQUENCES_MAX], count;
    for (int list = 0; list < CASE_LISTS; list++) {
        const int32_t *old = case_list(c, (enum case_list)list, &count);
        bool of_queries = list == LIST_LENGTHS_Q || list == LIST_PADDED_Q;
        bool padded = list == LIST_PADDED_Q || list == LIST_PADDED_KV;
        int64_t seqlen = of_queries ? c->seqlen_q : c->seqlen_kv;
        for (int32_t i = 0; i < count; i++) {
            values[i] = padded || old[i] < seqlen ? old[i] : (int32_t)seqlen;
            int64_t length = padded ? case_length(c, of_queries ? SIDE_Q : SIDE_KV, i) : 0;
            values[i] = values[i] > length ? values[i] : (int32_t)length;
        }
        if (padded && c->format != FORMAT_THD)
            count = 0;
        case_list_set(c, (enum case_list)list, values, count);
    }
}

static int32_t divisor_common(int32_t a, int32_t b)
{
    return b == 0 ? a : divisor_common(b, a % b);
}

// Adapts the other fields to the changed one.
static void repair(struct cp_case *c)
{
    c->a2a_size = c->comm == COMM_A2A_P2P ? divisor_common(c->a2a_size, c->world_size) : 2;
    if (c->format != FORMAT_THD)
        c->pad_multiple = 1;
    lists_fit(c);
}

// ---- steps ----

// Fills *to with proposal `number` of the step. False if there is none.
typedef bool step_fn(const struct cp_case *from, int number, struct cp_case *to);

static const struct {
    const char *name, *value;
} simplest[] = {
    {"model", ""},          {"explore_seed", "0"},      {"training", "false"}, {"bias", "none"},
    {"softmax", "vanilla"}, {"max_logit", "false"},     {"softcap", "0"},      {"scale", "0"},
    {"window_left", "-1"},  {"window_right", "-1"},     {"mask", "none"},      {"inputs", "sharp"},
    {"comm", "p2p"},        {"sharding", "contiguous"}, {"dtype", "bf16"},     {"format", "bshd"},
    {"lengths_q", ""},      {"lengths_kv", ""},         {"padded_q", ""},      {"padded_kv", ""},
    {"pad_multiple", "1"},  {"deterministic", "true"},  {"verify", "auto"},    {"seed", "1234"},
};

static bool field_simplest(const struct cp_case *from, int number, struct cp_case *to)
{
    if (number == sizeof(simplest) / sizeof(*simplest))
        return false;
    *to = *from;
    if (case_set(to, simplest[number].name, simplest[number].value, NULL) != STATUS_OK)
        abort();
    return true;
}

// Proposal `number` for a value below `value`, in decreasing steps: `least`, half way to it, half
// way + 1 (one of the two is odd), value - 1. Returns `value` if that is already the least.
static int64_t lower(int64_t value, int64_t least, int number)
{
    int64_t half = least + (value - least) / 2;
    const int64_t to[] = {least, half, half + 1, value - 1};
    return value > least ? to[number] : value;
}
#define LOWER 4

// Proposes world sizes from 1 on, then a2a group sizes from 1 on.
static bool fewer_ranks(const struct cp_case *from, int number, struct cp_case *to)
{
    int group = number - (from->world_size - 1);
    *to = *from;
    if (group < 0)
        to->world_size = 1 + number;
    else if (from->comm == COMM_A2A_P2P && group < from->a2a_size - 1)
        to->a2a_size = 1 + group;
    else
        return false;
    return true;
}

static bool fewer_heads(const struct cp_case *from, int number, struct cp_case *to)
{
    int32_t group = from->heads / from->kv_heads;
    *to = *from;
    if (number < LOWER)
        to->kv_heads = (int32_t)lower(from->kv_heads, 1, number);
    else if (number < 2 * LOWER)
        group = (int32_t)lower(group, 1, number - LOWER);
    else
        return false;
    to->heads = to->kv_heads * group;
    return true;
}

static bool smaller_dims(const struct cp_case *from, int number, struct cp_case *to)
{
    *to = *from;
    if (number >= 3 * LOWER)
        return false;
    if (number < 2 * LOWER) // both dims, then each alone
        to->head_dim_qk = (int32_t)lower(from->head_dim_qk, 1, number % LOWER);
    if (number < LOWER || number >= 2 * LOWER)
        to->head_dim_v = (int32_t)lower(from->head_dim_v, 1, number % LOWER);
    return true;
}

static int64_t longest(const struct cp_case *c, enum shard_side side)
{
    int64_t most = 0;
    for (int32_t i = 0; i < c->batch; i++)
        most = case_length(c, side, i) > most ? case_length(c, side, i) : most;
    return most;
}

static bool shorter(const struct cp_case *from, int number, struct cp_case *to)
{
    bool alike = from->seqlen_q == from->seqlen_kv;
    *to = *from;
    if (number >= 3 * LOWER + 1)
        return false;
    if (number == 0) { // cut to the longest sequences
        to->seqlen_q = longest(from, SIDE_Q);
        to->seqlen_kv = longest(from, SIDE_KV);
        return true;
    }
    number--;
    if (number < LOWER && !alike) // both sides only if equal, then each alone
        return true;
    if (number < 2 * LOWER)
        to->seqlen_q = lower(from->seqlen_q, 0, number % LOWER);
    if (number < LOWER || number >= 2 * LOWER)
        to->seqlen_kv = lower(from->seqlen_kv, 0, number % LOWER);
    return true;
}

static bool narrower(const struct cp_case *from, int number, struct cp_case *to)
{
    *to = *from;
    if (number < LOWER)
        to->window_left = lower(from->window_left, 0, number);
    else if (number < 2 * LOWER)
        to->window_right = lower(from->window_right, 0, number - LOWER);
    else if (number < 3 * LOWER)
        to->pad_multiple = (int32_t)lower(from->pad_multiple, 1, number - 2 * LOWER);
    else
        return false;
    return true;
}

static bool has_lists(const struct cp_case *c)
{
    return case_bytes(c) > offsetof(struct cp_case, list_values);
}

// Removes sequences: all but the first, then single ones. Without lists all are equal, and only
// their number is lowered.
static bool fewer_sequences(const struct cp_case *from, int number, struct cp_case *to)
{
    int32_t values[SEQUENCES_MAX], count;
    bool lists = has_lists(from);
    *to = *from;
    if (number > (lists ? from->batch : LOWER - 1) || from->batch == 1)
        return false;
    to->batch = number == 0 ? 1 : lists ? from->batch - 1 : (int32_t)lower(from->batch, 1, number);
    for (int list = 0; list < CASE_LISTS; list++) {
        const int32_t *old = case_list(from, (enum case_list)list, &count);
        for (int32_t i = 0; i < to->batch && count > 0; i++)
            values[i] = old[number > 0 && i >= number - 1 ? i + 1 : i];
        case_list_set(to, (enum case_list)list, values, count > 0 ? to->batch : 0);
    }
    return true;
}

static bool shorter_in_list(const struct cp_case *from, int number, struct cp_case *to)
{
    int32_t values[SEQUENCES_MAX], count;
    *to = *from;
    for (int list = 0; list < CASE_LISTS; list++, number -= count * LOWER) {
        const int32_t *old = case_list(from, (enum case_list)list, &count);
        if (number >= count * LOWER)
            continue;
        memcpy(values, old, (size_t)count * sizeof *values);
        int32_t *value = &values[number / LOWER];
        *value = (int32_t)lower(*value, 0, number % LOWER);
        case_list_set(to, (enum case_list)list, values, count);
        return true;
    }
    return false;
}

// Steps that make later tries cheaper come first.
static step_fn *const steps[] = {fewer_ranks,  fewer_sequences, shorter,  fewer_heads,
                                 smaller_dims, field_simplest,  narrower, shorter_in_list};

// ---- the search ----

struct search {
    struct cp_case *c;
    minimize_fails *fails;
    void *context;
    int tried, tries;
};

// Unused bytes of cases are zero.
static bool same(const struct cp_case *a, const struct cp_case *b)
{
    const void *bytes = a, *others = b;
    return memcmp(bytes, others, sizeof *a) == 0;
}

static bool accept(struct search *s, struct cp_case *proposal)
{
    repair(proposal);
    if (same(proposal, s->c) || case_check(proposal, NULL) != STATUS_OK || s->tried == s->tries)
        return false;
    s->tried++;
    if (!s->fails(proposal, s->context))
        return false;
    *s->c = *proposal;
    return true;
}

// After an accepted proposal the same number is tried on the smaller case.
static bool step_take(struct search *s, step_fn *step)
{
    struct cp_case proposal;
    bool progress = false;
    for (int number = 0; step(s->c, number, &proposal);) {
        bool smaller = accept(s, &proposal);
        progress = progress || smaller;
        number += !smaller;
    }
    return progress;
}

int minimize_case(struct cp_case *c, minimize_fails *fails, void *context, int tries)
{
    struct search s = {.c = c, .fails = fails, .context = context, .tries = tries};
    bool progress = true;
    while (progress && s.tried < s.tries) {
        progress = false;
        for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++)
            progress = step_take(&s, steps[i]) || progress;
    }
    return s.tried;
}
