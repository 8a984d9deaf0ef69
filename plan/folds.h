// SPDX-License-Identifier: Apache-2.0
// Folds: an operation does the work of neighbouring operations in its own launch.
// - Forward: the first attention that merges into a running result does the fills of the result,
//   and the attentions do its conversion. So a step of the forward is one launch.
// - Backward: an attention does the fills of gradients. If it is the only one that adds to dK and
//   dV, it also does their conversion.
// - A conversion does the additions to its source.
#ifndef CPATTN_PLAN_FOLDS_H
#define CPATTN_PLAN_FOLDS_H

#include "plan/plan.h"

// Maximum number of tensors that one conversion adds, its source included.
#define FOLD_SUMMANDS_MAX 8

// Maximum number of parts of a fill that remain to be filled.
#define FOLD_PARTS_MAX 8

// What the kernel of an attention can fold, as in struct op_needs.
struct fold_ability {
    bool folds, begins_queries;
};

struct fold {
    bool done; // another operation does the work; this one is not launched
    // Of an attention: the work that it does for others.
    bool queries_begin, keys_begin;    // backward: as in struct attention_backward
    bool begins, lse_begins, out_only; // forward: as in struct attention_fold
    float lse_begin;
    struct region out;            // forward; empty: none
    struct region dk_out, dv_out; // backward; empty: none
    // Of a fill: the parts that remain to be filled. 0 parts and not done: all, as in the plan.
    int32_t part_count;
    struct region parts[FOLD_PARTS_MAX];
    // Of a conversion: the additions that it does, in plan order.
    int32_t add_count, adds[FOLD_SUMMANDS_MAX - 1];
};

// Fills folds[i], zeroed by the caller, for each operation i. may[i]: what attention i can fold.
// `sums`: conversions can do additions. The attentions of a running result fold together, or none
// of them does. Folds less if memory is short.
void folds_find(const struct plan *plan, const struct fold_ability *may, bool sums,
                struct fold *folds);

#endif
