// SPDX-License-Identifier: Apache-2.0
// All memory that a case needs, from one mapping that outlives it: a rank that has run a case of
// this size before asks the system for nothing and touches no new page.
#ifndef CPATTN_COMMON_ARENA_H
#define CPATTN_COMMON_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define ARENA_ALIGNMENT 64 // of every piece: a cache line, and what BLAS likes best

// What an idle rank keeps. Rarely is a test case larger, and 64 idle ranks then hold 4 GiB.
#define ARENA_KEEP_BYTES (64 * 1024 * 1024)

struct arena {
    char *base;
    size_t capacity, used;
};

void arena_init(struct arena *a);
void arena_fini(struct arena *a);

// Adds to *total what a piece of `count` times `size` bytes takes. RESOURCE_EXHAUSTED when that
// exceeds what can be addressed, or either is negative.
enum status arena_add(size_t *total, int64_t count, int64_t size, struct error *error) MUST_CHECK;

// Empties the arena and makes room for a sum that arena_add() made. What was taken before is
// invalid.
enum status arena_reserve(struct arena *a, size_t total, struct error *error) MUST_CHECK;

// The next piece, with undefined contents; never NULL. The caller has reserved it.
void *arena_take(struct arena *a, int64_t count, int64_t size);

// Gives memory beyond ARENA_KEEP_BYTES back. What was taken is invalid.
void arena_trim(struct arena *a);

#endif
