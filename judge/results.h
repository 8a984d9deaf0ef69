// SPDX-License-Identifier: Apache-2.0
// The results of a rank, in the layouts of plan/plan.h and in the engine's memory.
#ifndef CPATTN_JUDGE_RESULTS_H
#define CPATTN_JUDGE_RESULTS_H

struct rank_results {
    const void *out, *dq, *dk, *dv; // in the case's dtype; gradients when training
    const float *lse;
    const float *dsink, *max_logit; // NULL: the case has none
    const void *dbias;              // NULL: the case has none
};

#endif
