// SPDX-License-Identifier: Apache-2.0
// Hypotheses that a sequence has what belongs to another one: its rows, or its length.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/diagnosis/trial.h"
#include "plan/slice.h"

#define SEQUENCES_MOST 16 // largest batch of which all sequences are tried

// ---- rows of another sequence -------------------------------------------------------------------

static double panel_energy(const struct trial *t, int i, const double *values)
{
    double sum = 0;
    for (int at = t->panel_first[i] * t->dim; at < t->panel_first[i + 1] * t->dim; at++)
        sum += t->got[at] == values[at] ? 0 : (t->got[at] - values[at]) * (t->got[at] - values[at]);
    return sum;
}

// Fills t->tried with the rows of a sequence at the same positions. False if it has no such rows.
static bool take_from(struct trial *t, int i, int32_t sequence)
{
    struct panel_setup setup = t->panels[i].setup;
    setup.sequence = sequence;
    for (int row = 0; row < setup.count; row++)
        if (setup.positions[row] >= case_length(t->c, setup.side, sequence))
            return false;
    return !trial_over(t) && trial_evaluate_other(t, i, &setup, true, t->tried);
}

// Finds the sequence whose rows a panel has; leaves them in t->tried. Its own one: -1.
static int32_t sequence_find(struct trial *t, int i)
{
    int first = t->panel_first[i], rows = t->panel_first[i + 1] - first;
    double least = panel_energy(t, i, t->right) / 4;
    int32_t best = -1;
    for (int32_t sequence = 0; sequence < t->c->batch; sequence++) {
        if (sequence == t->panels[i].setup.sequence || !take_from(t, i, sequence))
            continue;
        double energy = panel_energy(t, i, t->tried);
        if (!(energy < least))
            continue;
        least = energy;
        best = sequence;
    }
    if (best >= 0 && take_from(t, i, best))
        return best;
    memcpy(t->tried + first * t->dim, t->right + first * t->dim,
           (size_t)(rows * t->dim) * sizeof(double));
    memcpy(t->lse_tried + first, t->lse_right + first, (size_t)rows * sizeof(double));
    return -1;
}

static void try_rows(struct trial *t)
{
    int32_t to = -1, from = -1;
    for (int i = 0; i < t->panel_count; i++) {
        int32_t found = sequence_find(t, i);
        to = to < 0 && found >= 0 ? t->panels[i].setup.sequence : to;
        from = from < 0 ? found : from;
    }
    if (to < 0)
        return;
    for (int times = 0; times < 2; times++, trial_keep_lse(t)) // with their LSE, with the right one
        trial_offer(t, DIAGNOSIS_SHIFTED_ROWS, t->tried,
                    "the rows of %s of sequence %d are those of sequence %d",
                    report_tensor_name(t->in->tensor), to, from);
}

// ---- the length of another sequence -------------------------------------------------------------

// Computes the query rows of a panel as if its sequence had so many keys; more keys are zeros.
static bool evaluate_length(struct trial *t, int i, int64_t keys)
{
    struct panel *p = &t->panels[i];
    struct case_band band = case_band(t->c, p->setup.sequence);
    struct variant variant = variant_none(p);
    bool *seen = calloc((size_t)(p->rows * p->columns), sizeof(bool));
    if (!seen)
        return false;
    for (int row = 0; row < p->rows; row++)
        for (int64_t key = 0; key < p->keys && key < keys; key++) {
            int64_t right = key - p->setup.positions[row] + band.shift;
            seen[row * p->columns + key] = (band.left >= SLICE_UNBOUNDED || right >= -band.left) &&
                                           (band.right >= SLICE_UNBOUNDED || right <= band.right);
        }
    variant.seen = seen;
    variant.ghosts = keys > p->keys && band.right >= SLICE_UNBOUNDED ? (double)(keys - p->keys) : 0;
    trial_evaluate_panel(t, p, &variant, t->panel_first[i], t->tried, t->lse_tried);
    free(seen);
    return true;
}

static void try_length(struct trial *t, int distance)
{
    int32_t batch = t->c->batch;
    for (int i = 0; i < t->panel_count; i++) {
        int32_t other = (t->panels[i].setup.sequence + distance + batch) % batch;
        if (trial_over(t) || !evaluate_length(t, i, case_length(t->c, SIDE_KV, other)))
            return;
    }
    trial_offer(t, DIAGNOSIS_BOUNDARY, t->tried,
                "%sa sequence has as many keys as the sequence %s it", trial_pass(t),
                distance > 0 ? "after" : "before");
}

void try_sequences(struct trial *t)
{
    if (t->c->batch == 1)
        return;
    if (t->c->batch <= SEQUENCES_MOST)
        try_rows(t);
    for (int distance = -1; distance < 2; distance += 2)
        if (t->panels[0].setup.side == SIDE_Q)
            try_length(t, distance);
}
