// SPDX-License-Identifier: Apache-2.0
// What operations of a plan do in their own launches for operations around them. An attention of
// the forward does the fills of a running result before the first that merges into it, and its
// conversion behind the last, so that a step of the forward is one launch. An attention of the
// backward does the fills of gradients, and the conversion of dK and dV if it is the only one that
// adds to them. A conversion does the additions to what it converts.
#ifndef CPATTN_PLAN_FOLDS_H
#define CPATTN_PLAN_FOLDS_H

#include "plan/plan.h"

// Sums that one conversion reads, that which it converts among them.
#define FOLD_SUMMANDS_MAX 8

// Parts of a fill that may be left.
#define FOLD_PARTS_MAX 8

// What the launch of an attention can do beside its own (struct op_needs).
struct fold_ability {
    bool folds, begins_queries;
};

struct fold {
    bool done; // another operation does this one; there is nothing to launch
    // Of an attention: what it does beside its own.
    bool queries_begin, keys_begin;    // backward: as in struct attention_backward
    bool begins, lse_begins, out_only; // forward: as in struct attention_fold
    float lse_begin;
    struct region out;            // forward; empty: none
    struct region dk_out, dv_out; // backward; empty: none
    // Of a fill: the parts that are left to do, at least one unless the operation is done.
    int32_t part_count;
    struct region parts[FOLD_PARTS_MAX];
    // Of a conversion: the additions before it, in order.
    int32_t add_count, adds[FOLD_SUMMANDS_MAX - 1];
};

// Sets folds[i] (zeroed before) of each operation. A fill without parts that is not done is as in
// the plan. may[i]: what operation i, an attention, can do; `sums`: conversions may add. The
// attentions of a running result fold together, or none of them does. Folds less if memory is
// short.
void folds_find(const struct plan *plan, const struct fold_ability *may, bool sums,
                struct fold *folds);

#endif
