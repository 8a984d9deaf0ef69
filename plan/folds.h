// SPDX-License-Identifier: Apache-2.0
// What attentions of a plan's forward do in their own launches for operations around them: the
// fills of a running result before the first that merges into it, and its conversion behind the
// last. A step of the forward is one launch then.
#ifndef CPATTN_PLAN_FOLDS_H
#define CPATTN_PLAN_FOLDS_H

#include "plan/plan.h"

struct fold {
    bool done; // an attention does this operation; there is nothing to launch
    // Of an attention: what it does beside its own.
    bool begins, lse_begins, out_only; // as in struct attention_fold
    float lse_begin;
    struct region out; // empty: none
};

// Fills in folds[i] (zeroed before) of each operation. may[i]: operation i is an attention whose
// launch takes any struct attention_fold. Folds all operations around a running result or none of
// them: none if memory is short, or where the time of each operation is wanted.
void folds_find(const struct plan *plan, const bool *may, struct fold *folds);

#endif
