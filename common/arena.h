// SPDX-License-Identifier: Apache-2.0
// All host memory of a case, in one mapping that the next case reuses. A case that is no larger
// than an earlier one makes no system call and touches no new page.
#ifndef CPATTN_COMMON_ARENA_H
#define CPATTN_COMMON_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define ARENA_ALIGNMENT 64 // of every piece: a cache line, which suits BLAS

// Most memory that an idle rank keeps. Few test cases need more; 64 idle ranks keep at most 4 GiB.
#define ARENA_KEEP_BYTES (64 * 1024 * 1024)

struct arena {
    char *base;
    size_t capacity, used;
};

void arena_init(struct arena *a);
void arena_fini(struct arena *a);

// Adds a piece of `count` times `size` bytes, rounded up to the alignment, to *total.
// RESOURCE_EXHAUSTED: the sum cannot be addressed, or count or size is negative.
enum status arena_add(size_t *total, int64_t count, int64_t size, struct error *error) MUST_CHECK;

// The same with another alignment, for other kinds of memory.
enum status arena_add_aligned(size_t *total, int64_t count, int64_t size, size_t alignment,
                              struct error *error) MUST_CHECK;

// Empties the arena and makes room for `total` bytes, computed by arena_add(). All earlier pieces
// become invalid.
enum status arena_reserve(struct arena *a, size_t total, struct error *error) MUST_CHECK;

// Returns the next piece, with undefined contents; never NULL. It must have been reserved.
void *arena_take(struct arena *a, int64_t count, int64_t size);

// Empties the arena, and unmaps it if it is larger than ARENA_KEEP_BYTES. All pieces become
// invalid.
void arena_trim(struct arena *a);

#endif
