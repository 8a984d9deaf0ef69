// SPDX-License-Identifier: Apache-2.0
// What operations of a plan do in their own launches for operations around them. An attention of
// the forward does the fills of a running result before the first that merges into it, and its
// conversion behind the last, so that a step of the forward is one launch. A conversion does the
// additions to what it converts.
#ifndef CPATTN_PLAN_FOLDS_H
#define CPATTN_PLAN_FOLDS_H

#include "plan/plan.h"

// Sums that one conversion reads, that which it converts among them.
#define FOLD_SUMMANDS_MAX 8

struct fold {
    bool done; // another operation does this one; there is nothing to launch
    // Of an attention: what it does beside its own.
    bool begins, lse_begins, out_only; // as in struct attention_fold
    float lse_begin;
    struct region out; // empty: none
    // Of a conversion: the additions before it, in order.
    int32_t add_count, adds[FOLD_SUMMANDS_MAX - 1];
};

// Fills in folds[i] (zeroed before) of each operation. may[i]: operation i is an attention whose
// launch takes any struct attention_fold; `sums`: conversions may add. Folds all operations around
// a running result, or none of them: also if memory is short.
void folds_find(const struct plan *plan, const bool *may, bool sums, struct fold *folds);

#endif
