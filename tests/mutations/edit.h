// SPDX-License-Identifier: Apache-2.0
// Changing a plan that is built: operations are taken out, put in and given other operands, slices
// or transfers. What is short of memory aborts.
#ifndef CPATTN_TESTS_MUTATIONS_EDIT_H
#define CPATTN_TESTS_MUTATIONS_EDIT_H

#include "plan/plan.h"
#include "plan/team.h"

// ---- conditions ----

typedef bool match_fn(const struct plan *plan, const struct op *op);

// True if a region is not empty and its buffer has this name, ignoring a dot and what follows it.
bool edit_is(const struct plan *plan, const struct region *r, const char *name);
// The same for a prefix of the name.
bool edit_begins(const struct plan *plan, const struct region *r, const char *name);

// True if keys and values travel around a ring.
bool edit_is_ring(const struct plan *plan);
int edit_ring_size(const struct plan *plan);

bool edit_is_attend(const struct op *op);
// The team of the keys of an attend operation, and whether it is another than the rank's own.
struct team edit_source(const struct plan *plan, const struct op *op);
bool edit_is_remote(const struct plan *plan, const struct op *op);

// The first matching operation from `from` on, or the last of all; -1: none.
int32_t edit_find(const struct plan *plan, match_fn *match, int32_t from);
int32_t edit_find_last(const struct plan *plan, match_fn *match);

// ---- changes -----

// Removes an operation. Until edit_finish() it keeps its place, and matches nothing.
void edit_drop(struct op *op);
// Removes all matching operations; false if there are none.
bool edit_drop_all(struct plan *plan, match_fn *match);

// Inserts an operation before number `at`. Reallocates the array of operations.
void edit_insert(struct plan *plan, int32_t at, struct op op);
// Moves operation `from` to before number `at`.
void edit_move(struct plan *plan, int32_t from, int32_t at);

// A new buffer, as a region.
struct region edit_buffer(struct plan *plan, const char *name, int64_t bytes);

// New operations with the phase and step of `like`.
struct op edit_fill(const struct op *like, struct region destination, float value);
struct op edit_add(const struct op *like, struct region source, struct region destination);
// Without transfers; edit_transfer() adds one to the last inserted operation.
struct op edit_exchange(const struct op *like);
void edit_transfer(struct plan *plan, int32_t op, struct transfer transfer);

// ---- rectangles ----

// A span of queries with a span of keys of its sequence, before it becomes a slice.
struct rectangle {
    const struct cp_case *c;
    int rank;
    bool remote, backward;
    struct span q, keys;
    int64_t bias_column; // of the first key
    struct case_band band;
};

// False: unchanged. A rectangle without queries or keys gives no slice.
typedef bool rectangle_fn(struct rectangle *r);

// Builds the slices of all attend operations again. False if nothing changed.
bool edit_rectangles(struct plan *plan, rectangle_fn *change);

// ---- the changed plan ----

// Completes the plan with the waits of its operations.
void edit_finish(struct plan **plan);

#endif
