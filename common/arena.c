// SPDX-License-Identifier: Apache-2.0
#include "common/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// The mapping grows in these steps.
#define ARENA_STEP_BYTES ((size_t)2 * 1024 * 1024)

void arena_init(struct arena *a)
{
    *a = (struct arena){0};
}

void arena_fini(struct arena *a)
{
    if (a->base)
        munmap(a->base, a->capacity);
    arena_init(a);
}

static size_t aligned(size_t bytes, size_t alignment)
{
    return (bytes + alignment - 1) / alignment * alignment;
}

enum status arena_add(size_t *total, int64_t count, int64_t size, struct error *error)
{
    return arena_add_aligned(total, count, size, ARENA_ALIGNMENT, error);
}

enum status arena_add_aligned(size_t *total, int64_t count, int64_t size, size_t alignment,
                              struct error *error)
{
    int64_t bytes;
    if (count < 0 || size < 0 || __builtin_mul_overflow(count, size, &bytes) ||
        bytes > INT64_MAX / 2 || *total > (size_t)INT64_MAX / 2)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "%lld times %lld bytes exceed the address space", (long long)count,
                         (long long)size);
    *total += aligned((size_t)bytes, alignment);
    return STATUS_OK;
}

enum status arena_reserve(struct arena *a, size_t total, struct error *error)
{
    a->used = 0;
    if (a->base && total <= a->capacity)
        return STATUS_OK;
    if (total > (size_t)INT64_MAX - ARENA_STEP_BYTES)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "%zu bytes exceed the address space",
                         total);
    arena_fini(a);
    size_t capacity = (total / ARENA_STEP_BYTES + 1) * ARENA_STEP_BYTES;
    void *base = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu bytes: %s", capacity,
                         strerror(errno));
    // Huge pages halve the kernel's time for providing memory. A failure is harmless.
    (void)madvise(base, capacity, MADV_HUGEPAGE);
    a->base = base;
    a->capacity = capacity;
    return STATUS_OK;
}

void *arena_take(struct arena *a, int64_t count, int64_t size)
{
    size_t bytes = aligned((size_t)count * (size_t)size, ARENA_ALIGNMENT);
    if (bytes > a->capacity - a->used)
        abort(); // a take without a reserve is a bug
    void *piece = a->base + a->used;
    a->used += bytes;
    return piece;
}

void arena_trim(struct arena *a)
{
    if (a->capacity > ARENA_KEEP_BYTES)
        arena_fini(a);
    a->used = 0;
}
