// SPDX-License-Identifier: Apache-2.0
// All device memory of a case, from one allocation that is kept for the next case: common/arena.h
// for the current device.
#ifndef CPATTN_COMMON_CUDA_DEVICE_ARENA_H
#define CPATTN_COMMON_CUDA_DEVICE_ARENA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define DEVICE_ARENA_ALIGNMENT 256 // of every piece, for fast kernels and copies
// Minimum size for alternating memory: several times the caches of a device.
#define DEVICE_ARENA_TURNS     ((size_t)256 << 20)
// Memory that an idle rank may always keep.
#define DEVICE_ARENA_KEPT      ((size_t)512 << 20)

struct device_arena {
    char *base;
    size_t capacity, used;
    size_t turn;       // end of the last used part
    size_t keep_bytes; // maximum that an idle rank keeps
    bool patient;      // waits for memory of other processes; at first true
};

// `keep_bytes` and device_arena_trim() limit the memory of an idle rank.
void device_arena_init(struct device_arena *a, size_t keep_bytes);
void device_arena_fini(struct device_arena *a);

// Adds the bytes of a piece of `count` times `size` bytes to *total. RESOURCE_EXHAUSTED: the sum
// exceeds the address space, or one of them is negative.
enum status device_arena_add(size_t *total, int64_t count, int64_t size,
                             struct error *error) MUST_CHECK;

// Empties the arena and makes room for a total of device_arena_add(). Earlier pieces become
// invalid. RESOURCE_EXHAUSTED with the needed and the free memory: at once if the device is too
// small, else, if it is patient, after waiting up to a second for memory of other processes.
enum status device_arena_reserve(struct device_arena *a, size_t total,
                                 struct error *error) MUST_CHECK;

// The same, but the room begins behind that of the previous call while it fits, so that a timed
// repeat of a case does not find its data in the caches. Allocates more memory for this if the
// device has enough.
enum status device_arena_reserve_turn(struct device_arena *a, size_t total,
                                      struct error *error) MUST_CHECK;

// After one of these, before a piece is taken: gives back what the total does not need. Errors as
// of device_arena_reserve(); then the arena is empty.
enum status device_arena_shrink(struct device_arena *a, size_t total,
                                struct error *error) MUST_CHECK;

// The next piece, with undefined contents; never NULL. The caller has reserved it.
void *device_arena_take(struct device_arena *a, int64_t count, int64_t size);

// The largest allocation beside the arena that an idle rank may keep, of which it has held_bytes
// now: with it three quarters of the device stay free. At most keep_bytes, but never less than
// DEVICE_ARENA_KEPT.
size_t device_arena_beside(const struct device_arena *a, size_t held_bytes);

// As cudaMalloc(). Processes that are ending give their memory back after the driver has ended
// them, so a patient request that fails is repeated for up to a second, unless the device never has
// as much.
cudaError_t device_memory_take(void **base, size_t bytes, bool patient);

// Frees the memory that an idle rank may not keep: all of it if it exceeds keep_bytes, or if it
// exceeds DEVICE_ARENA_KEPT and less than three quarters of the device are free. So three quarters
// of a device stay free for the pools that share it. Pieces become invalid; the device must have
// finished with them.
void device_arena_trim(struct device_arena *a);

#endif
