// SPDX-License-Identifier: Apache-2.0
#include "judge/diagnosis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "judge/diagnosis/groups.h"
#include "judge/diagnosis/sums.h"
#include "judge/diagnosis/trial.h"

const char *diagnosis_kind_name(enum diagnosis_kind kind)
{
    static const char *const names[] = {[DIAGNOSIS_NONE] = "NONE",
#define DIAGNOSIS_NAME(name, about) [DIAGNOSIS_##name] = #name,
                                        DIAGNOSIS_LIST(DIAGNOSIS_NAME)
#undef DIAGNOSIS_NAME
    };
    return names[kind];
}

// ---- NaN and infinity ---------------------------------------------------------------------------

static bool keys_padded(const struct cp_case *c)
{
    bool padded = false;
    for (int32_t i = 0; i < c->batch && !padded; i++)
        padded = case_length(c, SIDE_KV, i) < case_occupied(c, SIDE_KV, i);
    return padded;
}

static const char *source_of_nonfinite(const struct trial *t, bool padded)
{
    if (t->in->unfilled)
        return padded ? "padding of inputs contains NaN"
                      : "such rows may see no key, or may not have been written";
    return padded ? "padding and memory contain NaN before a run"
                  : "memory contains NaN before a run";
}

// No hypothesis can be compared with NaN or infinity. The sentence says where they are.
static enum explains find_nonfinite(const struct trial *t, struct finding *result)
{
    bool bad[DIAGNOSIS_ROWS_MAX] = {false};
    char where[120];
    for (int at = 0; at < t->rows * t->dim; at++)
        bad[at / t->dim] = bad[at / t->dim] || !isfinite(t->got[at]);
    bool whole = trial_rows_name(t, bad, where, sizeof(where));
    const char *name = report_tensor_name(t->in->tensor);
    bool padded = keys_padded(t->c);
    *result = (struct finding){.kind = padded ? DIAGNOSIS_PADDING : DIAGNOSIS_NOT_FINITE,
                               .diagnosis = {.tensor = t->in->tensor, .explained = 1}};
    snprintf(result->diagnosis.text, sizeof(result->diagnosis.text), "%s is NaN or infinite %s; %s",
             name, where, source_of_nonfinite(t, padded));
    return whole ? EXPLAINS_ALL : EXPLAINS_MOST;
}

// ---- rows that must be zero ---------------------------------------------------------------------

// Finds rows that must be zero and are not. Called if no other rule is broken.
static void find_filled(struct trial *t, struct finding *result)
{
    const struct hypothesis *found = &t->best[DIAGNOSIS_EMPTY_ROW];
    try_filled(t);
    if (found->left == 1)
        return;
    *result = (struct finding){.kind = DIAGNOSIS_EMPTY_ROW,
                               .diagnosis = {.tensor = t->in->tensor, .explained = 1}};
    memcpy(result->diagnosis.text, found->text, sizeof(result->diagnosis.text));
}

// ---- the sentence -------------------------------------------------------------------------------

// Tries hypotheses by subject until one explains the whole error.
static void search(struct trial *t)
{
    static void (*const subjects[])(struct trial *) = {
        try_plain,   try_parts,   try_owners, try_variants, try_backward,  try_masks,    try_heads,
        try_sources, try_visible, try_online, try_shifts,   try_sequences, try_roundings};
    for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
        if (!trial_solved(t))
            subjects[i](t);
}

// Errors with less than this multiple of the energy of rounding are not described.
#define DESCRIBED 4

// Minimum number of elements of rows in which a mistake is named although rows like them are right.
#define ALONE_LEAST 12

// Forgets all hypotheses, so that the next ones are not compared with them.
static void forget(struct trial *t)
{
    for (int kind = 0; kind < DIAGNOSIS_KINDS; kind++)
        t->best[kind] = (struct hypothesis){.left = 1};
}

// Describes the error in general terms, without a known mistake.
static enum explains describe(struct trial *t, struct finding *result)
{
    if (t->error < DESCRIBED * t->noise)
        return EXPLAINS_NOTHING;
    forget(t);
    try_general(t);
    trial_decide(t, result);
    if (result->kind == DIAGNOSIS_NONE && t->dim > 1) {
        forget(t);
        try_places(t, true);
        trial_decide(t, result);
    }
    return result->kind == DIAGNOSIS_NONE ? EXPLAINS_NOTHING : EXPLAINS_PLACE;
}

// Finds the sentence for errors beyond rounding.
static enum explains find_mistake(struct trial *t, struct finding *result)
{
    search(t);
    enum explains explains = trial_decide(t, result);
    if (explains != EXPLAINS_NOTHING || t->in->alone)
        return explains;
    cut_find(t, result);
    if (result->kind == DIAGNOSIS_NONE)
        narrow_find(t, result);
    if (result->kind == DIAGNOSIS_NONE)
        narrow_lse_find(t, result);
    return result->kind != DIAGNOSIS_NONE ? EXPLAINS_ALL : describe(t, result);
}

static enum explains find_in_rows(struct trial *t, struct finding *result)
{
    enum explains explains = EXPLAINS_NOTHING;
    if (!t->finite)
        explains = find_nonfinite(t, result);
    else if (t->in->only_zero)
        find_filled(t, result);
    else if (t->error > t->noise)
        explains = find_mistake(t, result);
    if (t->finite && result->kind == DIAGNOSIS_NONE)
        narrow_exp_find(t, result);
    bool found = result->kind != DIAGNOSIS_NONE;
    return found && explains == EXPLAINS_NOTHING ? EXPLAINS_ALL : explains;
}

// Fills in the groups of heads and sequences, and single rows.
enum { OF_HEADS, OF_ROWS, GROUPS };

static enum explains find(const struct diagnosis_input *in, struct finding *result,
                          struct groups groups[GROUPS])
{
    struct trial t;
    enum explains explains = EXPLAINS_NOTHING;
    *result = (struct finding){.kind = DIAGNOSIS_NONE};
    groups[OF_HEADS] = groups[OF_ROWS] = (struct groups){.in = in};
    if (in->tensor == TENSOR_DBIAS || in->tensor == TENSOR_DSINK || in->tensor == TENSOR_MAX_LOGIT)
        return sums_find(in, result, &groups[OF_HEADS]);
    if (trial_init(&t, in)) {
        explains = find_in_rows(&t, result);
        groups_init(&groups[OF_HEADS], &t, false);
        if (t.dim >= ALONE_LEAST)
            groups_init(&groups[OF_ROWS], &t, true);
    }
    trial_fini(&t);
    return explains;
}

// ---- a mistake in some rows ---------------------------------------------------------------------

// Finds the sentence for the rows of wrong groups alone, if other groups are right.
static enum explains find_in_groups(const struct groups *groups, bool alone, struct finding *result)
{
    struct diagnosis_row rows[DIAGNOSIS_ROWS_MAX];
    struct diagnosis_input in = *groups->in;
    struct finding found;
    struct groups ignored[GROUPS];
    char where[160];
    in.some = true;
    in.alone = alone;
    in.rows = rows;
    in.count = groups_wrong_rows(groups, rows);
    enum explains explains = in.count > 0 ? find(&in, &found, ignored) : EXPLAINS_NOTHING;
    if (explains == EXPLAINS_NOTHING)
        return explains;
    groups_name(groups, where, sizeof(where));
    *result = found;
    int room = (int)(sizeof(found.diagnosis.text) - strlen(where) - sizeof(": "));
    snprintf(result->diagnosis.text, sizeof(result->diagnosis.text), "%s: %.*s", where, room,
             found.diagnosis.text);
    return explains;
}

void diagnosis_find(const struct diagnosis_input *input, struct finding *result)
{
    struct groups groups[GROUPS];
    struct finding some;
    *result = (struct finding){.kind = DIAGNOSIS_NONE};
    if (input->count == 0 || input->count > DIAGNOSIS_ROWS_MAX)
        return;
    enum explains all = find(input, result, groups);
    if (all == EXPLAINS_ALL)
        return;
    enum explains heads = find_in_groups(&groups[OF_HEADS], false, &some);
    // Factors of rows are not those of right rows.
    bool factors = heads == EXPLAINS_PLACE && some.kind != DIAGNOSIS_PLACES;
    if (heads > all || (heads == all && factors))
        *result = some;
    bool other_rows =
        memcmp(groups[OF_HEADS].wrong, groups[OF_ROWS].wrong, sizeof(groups[OF_ROWS].wrong)) != 0;
    if (all <= EXPLAINS_PLACE && heads <= EXPLAINS_PLACE && other_rows &&
        find_in_groups(&groups[OF_ROWS], true, &some) == EXPLAINS_ALL)
        *result = some;
}
