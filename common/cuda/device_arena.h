// SPDX-License-Identifier: Apache-2.0
// All device memory of a case, in one allocation that is kept for the next case. The counterpart of
// common/arena.h for the current device.
#ifndef CPATTN_COMMON_CUDA_DEVICE_ARENA_H
#define CPATTN_COMMON_CUDA_DEVICE_ARENA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define DEVICE_ARENA_ALIGNMENT 256 // of every piece, for fast kernels and copies
// Arena size with which repeats of a case take turns in memory: several times the L2 of a device.
#define DEVICE_ARENA_TURNS     ((size_t)256 << 20)
// Memory that an idle rank may keep however little of the device is free.
#define DEVICE_ARENA_KEPT      ((size_t)512 << 20)

struct device_arena {
    char *base;
    size_t capacity, used;
    size_t turn;       // end of the last piece; device_arena_reserve_turn() continues here
    size_t keep_bytes; // maximum that an idle rank keeps
    bool patient;      // wait for other processes to free memory; initially true
};

// `keep_bytes` and device_arena_trim() limit the memory of an idle rank.
void device_arena_init(struct device_arena *a, size_t keep_bytes);
void device_arena_fini(struct device_arena *a);

// Adds the bytes of a piece of `count` times `size` bytes to *total. RESOURCE_EXHAUSTED: the sum
// exceeds the address space, or one of them is negative.
enum status device_arena_add(size_t *total, int64_t count, int64_t size,
                             struct error *error) MUST_CHECK;

// Empties the arena and makes room for `total` bytes, computed by device_arena_add(). Earlier
// pieces become invalid. RESOURCE_EXHAUSTED, with the needed and the free memory in the message: a
// device that is too small fails at once; otherwise a patient arena first waits up to a second for
// other processes to free memory.
enum status device_arena_reserve(struct device_arena *a, size_t total,
                                 struct error *error) MUST_CHECK;

// The same, but the pieces begin behind those of the previous call if they fit there, so that a
// timed repeat of a case does not find its data in the L2 cache. Tries to enlarge the arena to
// DEVICE_ARENA_TURNS for this.
enum status device_arena_reserve_turn(struct device_arena *a, size_t total,
                                      struct error *error) MUST_CHECK;

// Reallocates the arena for `total` bytes if it is larger than needed. Call after a reserve, before
// a piece is taken. Fails like device_arena_reserve(); the arena is then empty.
enum status device_arena_shrink(struct device_arena *a, size_t total,
                                struct error *error) MUST_CHECK;

// Returns the next piece, with undefined contents; never NULL. It must have been reserved.
void *device_arena_take(struct device_arena *a, int64_t count, int64_t size);

// Returns the largest size, in bytes, of an allocation beside the arena that an idle rank may keep.
// held_bytes is its present size. Three quarters of the device stay free; the result is at most
// keep_bytes, but at least DEVICE_ARENA_KEPT.
size_t device_arena_beside(const struct device_arena *a, size_t held_bytes);

// cudaMalloc() with retries. The driver frees the memory of an ending process with a delay, so a
// patient request that fails is repeated for up to a second, unless it exceeds the device's total
// memory.
cudaError_t device_memory_take(void **base, size_t bytes, bool patient);

// Empties the arena when the rank becomes idle. Frees its memory if it exceeds keep_bytes, or if it
// exceeds DEVICE_ARENA_KEPT and less than three quarters of the device are free, so that other
// pools find three quarters of the device free. Pieces become invalid; the device must have
// finished using them.
void device_arena_trim(struct device_arena *a);

#endif
