// SPDX-License-Identifier: Apache-2.0
// All memory of a case, in one mapping that the next case reuses: a case that is no larger than an
// earlier one makes no system call and touches no new page.
#ifndef CPATTN_COMMON_ARENA_H
#define CPATTN_COMMON_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define ARENA_ALIGNMENT 64 // of every piece: a cache line, which suits BLAS

// Memory that an idle rank keeps. Few test cases are larger; 64 idle ranks hold 4 GiB at most.
#define ARENA_KEEP_BYTES (64 * 1024 * 1024)

struct arena {
    char *base;
    size_t capacity, used;
};

void arena_init(struct arena *a);
void arena_fini(struct arena *a);

// Adds the bytes of a piece of `count` times `size` bytes to *total. RESOURCE_EXHAUSTED if the sum
// cannot be addressed, or count or size is negative.
enum status arena_add(size_t *total, int64_t count, int64_t size, struct error *error) MUST_CHECK;

// The same for memory whose pieces have another alignment.
enum status arena_add_aligned(size_t *total, int64_t count, int64_t size, size_t alignment,
                              struct error *error) MUST_CHECK;

// Empties the arena and makes room for a total of arena_add(). Pieces that were taken before become
// invalid.
enum status arena_reserve(struct arena *a, size_t total, struct error *error) MUST_CHECK;

// Returns the next piece, with undefined contents; never NULL. It must have been reserved.
void *arena_take(struct arena *a, int64_t count, int64_t size);

// Returns memory beyond ARENA_KEEP_BYTES to the system. All pieces become invalid.
void arena_trim(struct arena *a);

#endif
