// SPDX-License-Identifier: Apache-2.0
// Hypotheses that a gradient has a factor only where query and key are held by one rank, or by
// different ranks.
#include <math.h>

#include "judge/diagnosis/trial.h"

#define FACTOR_LEAST 0.05 // smaller ones are contributions that are missing
#define FACTOR_IS_1  0.01

// Replaces `own` by the share whose factor is wrong: 0 its own, 1 the rest.
static void share_offer(struct trial *t, const double *own, int share, double factor,
                        const char *whose)
{
    char name[160], text[TRIAL_FACTOR_MAX];
    for (int at = 0; at < t->rows * t->dim; at++) {
        double part = share == 0 ? own[at] : t->right[at] - own[at];
        t->tried[at] = t->right[at] + (factor - 1) * part;
    }
    trial_factor_name(t, factor, name, sizeof(name));
    trial_factor_text(t, factor, text);
    trial_offer(t, DIAGNOSIS_FACTOR, t->tried,
                "what the %s of %s add to %s is %s times what it "
                "should be%s",
                whose, share == 0 ? "the own rank" : "other ranks",
                report_tensor_name(t->in->tensor), text, name);
}

void trial_try_shares(struct trial *t, double *own, const char *whose)
{
    double *components[] = {own, t->moved}, factors[2];
    for (int at = 0; at < t->rows * t->dim; at++)
        t->moved[at] = t->right[at] - own[at];
    if (!trial_fit(t, components, 2, NULL, factors))
        return;
    for (int share = 0; share < 2; share++)
        if (fabs(factors[1 - share] - 1) < FACTOR_IS_1 && fabs(factors[share]) > FACTOR_LEAST &&
            !trial_is_one(t, factors[share]))
            share_offer(t, own, share, factors[share], whose);
}
