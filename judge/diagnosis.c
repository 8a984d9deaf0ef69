// SPDX-License-Identifier: Apache-2.0
#include "judge/diagnosis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

// Numbers explain nothing then, but the places of NaN may.
static void find_nonfinite(const struct trial *t, struct finding *result)
{
    int bad = 0, first = 0;
    for (int row = 0; row < t->rows; row++) {
        bool finite = true;
        for (int k = 0; k < t->dim; k++)
            finite = finite && isfinite(t->got[row * t->dim + k]);
        first = !finite && bad == 0 ? row : first;
        bad += !finite;
    }
    const struct diagnosis_row *row = &t->in->rows[t->row_of[first]];
    const char *name = report_tensor_name(t->in->tensor);
    bool padded = keys_padded(t->c);
    *result = (struct finding){.kind = padded ? DIAGNOSIS_PADDING : DIAGNOSIS_NOT_FINITE,
                               .said = {.tensor = t->in->tensor, .explained = 1}};
    snprintf(result->said.text, sizeof(result->said.text),
             "%s is NaN or infinite in %d of %d rows looked at, as of sequence %d, head %d, "
             "position %lld; NaN is what %s before a run",
             name, bad, t->rows, row->sequence, row->head, (long long)row->position,
             padded ? "padding and memory hold" : "memory holds");
}

// ---- rows that must be zero ---------------------------------------------------------------------

// If no other rule is broken, there is nothing else to explain.
static void find_filled(struct trial *t, struct finding *result)
{
    const struct suspicion *found = &t->best[DIAGNOSIS_EMPTY_ROW];
    suspect_filled(t);
    if (found->left == 1)
        return;
    *result = (struct finding){.kind = DIAGNOSIS_EMPTY_ROW,
                               .said = {.tensor = t->in->tensor, .explained = 1}};
    memcpy(result->said.text, found->text, sizeof(result->said.text));
}

// ---- the sentence -------------------------------------------------------------------------------

static void search(struct trial *t)
{
    static void (*const subjects[])(struct trial *) = {
        suspect_plain, suspect_parts,   suspect_owners, suspect_twists,
        suspect_heads, suspect_sources, suspect_shifts};
    for (size_t i = 0; i < sizeof(subjects) / sizeof(*subjects); i++)
        if (!trial_solved(t))
            subjects[i](t);
}

void diagnosis_find(const struct diagnosis_input *input, struct finding *result)
{
    struct trial t;
    *result = (struct finding){.kind = DIAGNOSIS_NONE};
    if (input->count == 0 || input->count > DIAGNOSIS_ROWS_MAX)
        return;
    if (input->tensor == TENSOR_DBIAS || input->tensor == TENSOR_DSINK ||
        input->tensor == TENSOR_MAX_LOGIT) {
        sums_find(input, result);
        return;
    }
    if (trial_init(&t, input)) {
        if (!t.finite)
            find_nonfinite(&t, result);
        else if (input->zero_alone)
            find_filled(&t, result);
        else if (t.error > t.noise) {
            search(&t);
            trial_decide(&t, result);
            if (result->kind == DIAGNOSIS_NONE)
                narrow_find(&t, result);
        }
    }
    trial_fini(&t);
}
