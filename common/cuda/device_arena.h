// SPDX-License-Identifier: Apache-2.0
// All device memory that a case needs, from one allocation that outlives it: see common/arena.h, of
// which this is the likeness on the device that is current.
#ifndef CPATTN_COMMON_CUDA_DEVICE_ARENA_H
#define CPATTN_COMMON_CUDA_DEVICE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define DEVICE_ARENA_ALIGNMENT 256 // of every piece: what all kernels and copies like best
// The least to take turns on: several times what the caches of a device hold.
#define DEVICE_ARENA_TURNS     ((size_t)256 << 20)
// What an idle rank may keep whatever others have; the step above that fits.
#define DEVICE_ARENA_KEPT      ((size_t)512 << 20)

struct device_arena {
    char *base;
    size_t capacity, used;
    size_t turn;       // where what was taken last ended
    size_t keep_bytes; // the most that an idle rank keeps
};

// The memory of an idle rank is bounded by `keep_bytes`, and by what device_arena_trim() says.
void device_arena_init(struct device_arena *a, size_t keep_bytes);
void device_arena_fini(struct device_arena *a);

// Adds to *total what a piece of `count` times `size` bytes takes. RESOURCE_EXHAUSTED when that
// exceeds what can be addressed, or either is negative.
enum status device_arena_add(size_t *total, int64_t count, int64_t size,
                             struct error *error) MUST_CHECK;

// Empties the arena and makes room for a sum that device_arena_add() made. What was taken before is
// invalid. RESOURCE_EXHAUSTED, with what is wanted and what is free, when the device has no more:
// at once if it never has as much, else after waiting up to a second for others to end.
enum status device_arena_reserve(struct device_arena *a, size_t total,
                                 struct error *error) MUST_CHECK;

// The same, but the room begins behind that of the time before, as long as there is room, so that a
// case that is repeated to be timed finds nothing of the last run in the caches. Takes more memory
// than is needed for that where there is some.
enum status device_arena_reserve_turn(struct device_arena *a, size_t total,
                                      struct error *error) MUST_CHECK;

// The next piece, with undefined contents; never NULL. The caller has reserved it.
void *device_arena_take(struct device_arena *a, int64_t count, int64_t size);

// Gives memory back that an idle rank does not keep: all of it where it is more than the bound, or
// where it is more than little and less than three quarters of the device are free. So pools that
// share a device leave each other these, however many there are. What was taken is invalid; the
// device is through with it.
void device_arena_trim(struct device_arena *a);

#endif
