// SPDX-License-Identifier: Apache-2.0
// The decision: whether one of the hypotheses of a trial explains the error.
#include <stdio.h>

#include "judge/diagnosis/trial.h"

#define ENOUGH      0.1   // maximum share that the best hypothesis may leave
#define NOTHING     0.005 // a smaller share is as good as 0 in the comparison of kinds
#define SOLVED      0.002 // a smaller share ends the search
// A hypothesis that explains most of the error, but leaves more than this multiple of rounding, may
// only be like the mistake.
#define ALIKE       100
// If the error is hardly above rounding, a hypothesis must explain at least this many times the
// remaining energy per row. By chance it explains about once that energy.
#define SIGNIFICANT 30
#define SENSIBLE    0.05 // then also at least this share of the energy of rounding
// With fewer numbers, a hypothesis that leaves more than this multiple of rounding fits by chance.
#define FEW         4
#define FEW_LEFT    16

// True if the hypothesis leaves only rounding.
static bool fits(const struct trial *t, const struct hypothesis *s)
{
    return s->left < NOTHING || (s->left < ENOUGH && s->lse < NOTHING && s->after < 2 * t->noise);
}

// True if another mistake may be like the hypothesis. Roundings are not reproduced exactly.
static bool only_alike(const struct trial *t, int kind)
{
    const struct hypothesis *s = &t->best[kind];
    return s->left >= NOTHING && s->after > ALIKE * t->noise && kind != DIAGNOSIS_ROUNDED;
}

// The share that a hypothesis leaves, for comparison with other kinds.
static double left_of(const struct trial *t, const struct hypothesis *s)
{
    return fits(t, s) ? NOTHING : s->left;
}

// True if the other hypothesis explains nearly as much as the best one, so that neither is certain.
static bool rivals(const struct trial *t, int best_kind, int other_kind)
{
    const struct hypothesis *best = &t->best[best_kind], *other = &t->best[other_kind];
    bool much_alike = (best_kind == DIAGNOSIS_FACTOR && other_kind == DIAGNOSIS_TRUNCATED) ||
                      (best_kind == DIAGNOSIS_TRUNCATED && other_kind == DIAGNOSIS_FACTOR);
    if (much_alike) // truncation makes values smaller by about half a unit
        return other->left < 1 && other->after < 1.05 * best->after;
    if (fits(t, best))
        return false; // if both fit, the kind that is listed first is likelier
    return other->left < 2 * best->left + 0.02;
}

// True if the hypothesis explains more than chance does.
static bool significant(const struct trial *t, const struct hypothesis *s)
{
    double of_one = s->after / t->rows; // rounding of P moves a row as a whole
    if (t->rows * t->dim < FEW && s->after > FEW_LEFT * t->noise)
        return false;
    if (t->error - t->noise > t->noise)
        return true;
    return s->gone > SIGNIFICANT * of_one && s->gone > SENSIBLE * t->noise &&
           s->after < 1.3 * t->noise;
}

bool trial_solved(const struct trial *t)
{
    for (int kind = 1; kind < DIAGNOSIS_KINDS; kind++)
        if (t->best[kind].left < SOLVED && significant(t, &t->best[kind]))
            return true;
    return false;
}

enum explains trial_decide(const struct trial *t, struct finding *result)
{
    int best = DIAGNOSIS_NONE;
    for (int kind = 1; kind < DIAGNOSIS_KINDS; kind++)
        if (t->best[kind].left < (t->interrupted ? NOTHING : ENOUGH) &&
            (!best || left_of(t, &t->best[kind]) < left_of(t, &t->best[best])))
            best = kind;
    if (!best || !significant(t, &t->best[best]))
        return EXPLAINS_NOTHING;
    for (int kind = 1; kind < DIAGNOSIS_KINDS; kind++)
        if (kind != best && rivals(t, best, kind))
            return EXPLAINS_NOTHING;
    result->kind = (enum diagnosis_kind)best;
    result->diagnosis =
        (struct diagnosis){.tensor = t->in->tensor, .explained = 1 - t->best[best].left};
    snprintf(result->diagnosis.text, sizeof(result->diagnosis.text), "%s%s",
             only_alike(t, best) ? "perhaps " : "", t->best[best].text);
    return fits(t, &t->best[best]) && !t->best[best].partly ? EXPLAINS_ALL : EXPLAINS_MOST;
}
