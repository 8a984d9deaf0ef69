// SPDX-License-Identifier: Apache-2.0
// Edits a finished plan: removes and inserts operations, and changes their operands, slices and
// transfers. Aborts the program if memory is short.
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

// The first matching operation from number `from` on; -1: none.
int32_t edit_find(const struct plan *plan, match_fn *match, int32_t from);
// The last matching operation of the plan; -1: none.
int32_t edit_find_last(const struct plan *plan, match_fn *match);

// ---- changes -----

// Removes an operation. Until edit_finish() its place holds an operation without kind and operands.
void edit_drop(struct op *op);
// Removes all matching operations; false if there are none.
bool edit_drop_all(struct plan *plan, match_fn *match);

// Inserts an operation before number `at`. Reallocates the array of operations.
void edit_insert(struct plan *plan, int32_t at, struct op op);
// Moves operation `from` to before number `at`.
void edit_move(struct plan *plan, int32_t from, int32_t at);

// Adds a scratch buffer. Returns the region of all its bytes.
struct region edit_buffer(struct plan *plan, const char *name, int64_t bytes);

// New operations with the phase and step of `like`.
struct op edit_fill(const struct op *like, struct region destination, float value);
struct op edit_add(const struct op *like, struct region source, struct region destination);
// An exchange without transfers.
struct op edit_exchange(const struct op *like);
// Adds a transfer to operation number `op`.
void edit_transfer(struct plan *plan, int32_t op, struct transfer transfer);

// ---- rectangles ----

// A span of queries and a span of keys of the same sequence. edit_rectangles() makes a slice of it.
struct rectangle {
    const struct cp_case *c;
    int rank;
    bool remote, backward;
    struct span q, keys;
    int64_t bias_column; // of the first key
    struct case_band band;
};

// Changes a rectangle; returns false if it stays the same. A rectangle without queries or keys
// gives no slice.
typedef bool rectangle_fn(struct rectangle *r);

// Builds the slices of all attend operations again. False if nothing changed.
bool edit_rectangles(struct plan *plan, rectangle_fn *change);

// ---- the changed plan ----

// Replaces the plan by a new one with the same operations and with the waits that they need.
void edit_finish(struct plan **plan);

#endif
