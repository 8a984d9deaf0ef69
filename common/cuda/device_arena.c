// SPDX-License-Identifier: Apache-2.0
#include "common/cuda/device_arena.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "common/arena.h"

#define MIB          ((size_t)1 << 20)
// The size of the allocation is a multiple of this.
#define STEP_BYTES   (32 * MIB)
// Limit for waiting until other processes free memory. The driver needs some hundred milliseconds
// to release the memory of a pool's ranks after their end.
#define LACK_MS      800
#define LACK_STEP_MS 20

void device_arena_init(struct device_arena *a, size_t keep_bytes)
{
    *a = (struct device_arena){.keep_bytes = keep_bytes, .patient = true};
}

static void arena_free(struct device_arena *a)
{
    if (a->base)
        (void)cudaFree(a->base);
    a->base = NULL;
    a->capacity = a->used = a->turn = 0;
}

void device_arena_fini(struct device_arena *a)
{
    arena_free(a);
}

static size_t aligned(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

enum status device_arena_add(size_t *total, int64_t count, int64_t size, struct error *error)
{
    return arena_add_aligned(total, count, size, DEVICE_ARENA_ALIGNMENT, error);
}

static enum status memory_lacking(size_t wanted, cudaError_t cause, struct error *error)
{
    struct cudaDeviceProp properties = {.name = "?"};
    size_t free_bytes = 0, total_bytes = 0;
    int device = 0;
    (void)cudaGetLastError();
    if (cause != cudaErrorMemoryAllocation)
        return error_set(error, STATUS_INTERNAL, "cannot allocate %zu MiB of device memory: %s",
                         wanted / MIB, cudaGetErrorString(cause));
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    if (cudaGetDevice(&device) == cudaSuccess)
        (void)cudaGetDeviceProperties(&properties, device);
    // Names the device by its PCI address, since libraries number devices differently.
    return error_set(
        error, STATUS_RESOURCE_EXHAUSTED,
        "the case needs %zu MiB of device memory, and the %s at %04x:%02x:%02x has %zu "
        "of its %zu MiB free; more ranks, shorter sequences or fewer heads need less, "
        "and other processes on the device that end give some back",
        (wanted + MIB - 1) / MIB, properties.name, properties.pciDomainID, properties.pciBusID,
        properties.pciDeviceID, free_bytes / MIB, total_bytes / MIB);
}

// Size of the next allocation: half as much again as before if an idle rank may keep that much, so
// that a series of growing cases does not allocate for each case.
static size_t capacity_next(const struct device_arena *a, size_t total)
{
    size_t grown = a->capacity + a->capacity / 2;
    return aligned((grown > total && grown <= a->keep_bytes ? grown : total) + 1, STEP_BYTES);
}

cudaError_t device_memory_take(void **base, size_t bytes, bool patient)
{
    const struct timespec step = {.tv_nsec = LACK_STEP_MS * 1000000};
    size_t free_bytes, total_bytes = 0;
    cudaError_t result = cudaMalloc(base, bytes);
    for (int ms = patient ? 0 : LACK_MS; result == cudaErrorMemoryAllocation && ms < LACK_MS;
         ms += LACK_STEP_MS) {
        (void)cudaGetLastError();
        if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess || bytes > total_bytes)
            break;
        nanosleep(&step, NULL);
        result = cudaMalloc(base, bytes);
    }
    return result;
}

static enum status reserve(struct device_arena *a, size_t total, bool patient, struct error *error)
{
    a->used = 0;
    if (a->base && total <= a->capacity)
        return STATUS_OK;
    if (total > (size_t)INT64_MAX - STEP_BYTES)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "%zu bytes exceed the address space",
                         total);
    size_t capacity = capacity_next(a, total);
    void *base = NULL;
    arena_free(a);
    cudaError_t result = cudaMalloc(&base, capacity);
    if (result == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        capacity = aligned(total + 1, STEP_BYTES);
        result = device_memory_take(&base, capacity, patient);
    }
    if (result != cudaSuccess)
        return memory_lacking(total, result, error);
    a->base = base;
    a->capacity = capacity;
    return STATUS_OK;
}

enum status device_arena_reserve(struct device_arena *a, size_t total, struct error *error)
{
    return reserve(a, total, a->patient, error);
}

enum status device_arena_shrink(struct device_arena *a, size_t total, struct error *error)
{
    if (a->capacity <= aligned(total + 1, STEP_BYTES))
        return STATUS_OK;
    arena_free(a);
    return reserve(a, total, a->patient, error);
}

enum status device_arena_reserve_turn(struct device_arena *a, size_t total, struct error *error)
{
    struct error ignored;
    enum status status = STATUS_RESOURCE_EXHAUSTED;
    if (a->capacity < DEVICE_ARENA_TURNS && total < DEVICE_ARENA_TURNS &&
        DEVICE_ARENA_TURNS <= a->keep_bytes)
        status = reserve(a, DEVICE_ARENA_TURNS, false, &ignored);
    if (status != STATUS_OK)
        status = reserve(a, total, a->patient, error);
    if (status == STATUS_OK && total <= a->capacity - a->turn)
        a->used = a->turn;
    return status;
}

void *device_arena_take(struct device_arena *a, int64_t count, int64_t size)
{
    size_t bytes = aligned((size_t)count * (size_t)size, DEVICE_ARENA_ALIGNMENT);
    if (bytes > a->capacity - a->used)
        abort(); // a take without a reserve is a bug
    void *piece = a->base + a->used;
    a->used += bytes;
    a->turn = a->used;
    return piece;
}

// True if less than three quarters of the device's memory are free, counting all processes: the
// idle ranks of all pools share one quarter.
static bool memory_is_scarce(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    return cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess ||
           free_bytes < total_bytes / 4 * 3;
}

size_t device_arena_beside(const struct device_arena *a, size_t held_bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
        return DEVICE_ARENA_KEPT;
    size_t kept_free = total_bytes / 4 * 3, most = free_bytes + held_bytes;
    most = most > kept_free ? most - kept_free : 0;
    most = most < a->keep_bytes ? most : a->keep_bytes;
    return most > DEVICE_ARENA_KEPT ? most : DEVICE_ARENA_KEPT;
}

void device_arena_trim(struct device_arena *a)
{
    if (a->capacity > a->keep_bytes || (a->capacity > DEVICE_ARENA_KEPT && memory_is_scarce()))
        arena_free(a);
    a->used = 0;
}
