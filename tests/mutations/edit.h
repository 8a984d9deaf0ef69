// SPDX-License-Identifier: Apache-2.0
// Changing a plan that is built: operations are taken out, put in and given other operands, slices
// or transfers. What is short of memory aborts.
#ifndef CPATTN_TESTS_MUTATIONS_EDIT_H
#define CPATTN_TESTS_MUTATIONS_EDIT_H

#include "plan/plan.h"
#include "plan/team.h"

// ---- looking ----

typedef bool match_fn(const struct plan *plan, const struct op *op);

// Whether a region is not empty and its buffer has this name, but for what is behind a dot.
bool edit_is(const struct plan *plan, const struct region *r, const char *name);
// The same of the beginning of the name.
bool edit_begins(const struct plan *plan, const struct region *r, const char *name);

// Whether keys and values go round a ring.
bool edit_is_ring(const struct plan *plan);
int edit_ring_size(const struct plan *plan);

bool edit_is_attend(const struct op *op);
// The team whose keys an attend operation takes, and whether it is another than the rank's own.
struct team edit_source(const struct plan *plan, const struct op *op);
bool edit_is_remote(const struct plan *plan, const struct op *op);

// The first operation that matches at or behind `from`, or the last one of all; -1: none.
int32_t edit_find(const struct plan *plan, match_fn *match, int32_t from);
int32_t edit_find_last(const struct plan *plan, match_fn *match);

// ---- changing ----

// Takes an operation out. It keeps its place until edit_finish(), without matching anything.
void edit_drop(struct op *op);
// Takes out all that match; false where there are none.
bool edit_drop_all(struct plan *plan, match_fn *match);

// Puts an operation in before number `at`; those behind it move. Moves the array of operations.
void edit_insert(struct plan *plan, int32_t at, struct op op);
// Moves operation `from` to before number `at`.
void edit_move(struct plan *plan, int32_t from, int32_t at);

// A new buffer, whole.
struct region edit_buffer(struct plan *plan, const char *name, int64_t bytes);

// Operations as they would be beside `like`: of its phase and step.
struct op edit_fill(const struct op *like, struct region destination, float value);
struct op edit_add(const struct op *like, struct region source, struct region destination);
// Without transfers; edit_transfer() adds one to the operation that was put into the plan last.
struct op edit_exchange(const struct op *like);
void edit_transfer(struct plan *plan, int32_t op, struct transfer transfer);

// ---- rectangles ----

// A span of queries that meets a span of keys of its sequence, before it becomes a slice.
struct rectangle {
    const struct cp_case *c;
    int rank;
    bool remote, backward;
    struct span q, keys;
    int64_t bias_column; // of the first key
    struct case_band band;
};

// False: it is right as it is. A rectangle without queries or keys is no slice.
typedef bool rectangle_fn(struct rectangle *r);

// Makes the slices of all attend operations anew. False where nothing has changed.
bool edit_rectangles(struct plan *plan, rectangle_fn *change);

// ---- the end ----

// The plan that the builder makes of the operations, with waits that fit them.
void edit_finish(struct plan **plan);

#endif
