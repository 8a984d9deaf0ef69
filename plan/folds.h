// SPDX-License-Identifier: Apache-2.0
// What operations of a plan do in their own launches for operations around them. An attention of
// the forward does the fills of a running result before the first that merges into it, and its
// conversion behind the last, so that a step of the forward is one launch. An attention of the
// backward does the fills of gradients. A conversion does the additions to what it converts.
#ifndef CPATTN_PLAN_FOLDS_H
#define CPATTN_PLAN_FOLDS_H

#include "plan/plan.h"

// Sums that one conversion reads, that which it converts among them.
#define FOLD_SUMMANDS_MAX 8

// Parts of a fill that may be left.
#define FOLD_PARTS_MAX 8

struct fold {
    bool done; // another operation does this one; there is nothing to launch
    // Of an attention: what it does beside its own.
    bool queries_begin, keys_begin;    // backward: as in struct attention_backward
    bool begins, lse_begins, out_only; // forward: as in struct attention_fold
    float lse_begin;
    struct region out; // empty: none
    // Of a fill: the parts that are left to do, at least one unless the operation is done.
    int32_t part_count;
    struct region parts[FOLD_PARTS_MAX];
    // Of a conversion: the additions before it, in order.
    int32_t add_count, adds[FOLD_SUMMANDS_MAX - 1];
};

// Fills in folds[i] (zeroed before) of each operation. Fills in no part are as in the plan. may[i]:
// operation i is an attention whose launch folds (struct op_needs); `sums`: conversions may add.
// Folds all operations around a running result of the forward, or none of them. Folds less if
// memory is short.
void folds_find(const struct plan *plan, const bool *may, bool sums, struct fold *folds);

#endif
