// SPDX-License-Identifier: Apache-2.0
// Tests the device arena with a simulated allocator. Needs the CUDA headers, but no device.
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/cuda/device_arena.h"
#include "tests/support/runner.h"

#define MIB ((size_t)1 << 20)

static size_t device_bytes, taken_bytes; // size of the device's memory; allocated bytes
static int allocations, refusals;
static size_t leaving_bytes; // part of taken_bytes, freed at the third refused allocation

// ---- the runtime ----

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    if (size > device_bytes - taken_bytes) {
        taken_bytes -= ++refusals == 3 ? leaving_bytes : 0;
        return cudaErrorMemoryAllocation;
    }
    taken_bytes += size;
    allocations++;
    *devPtr = malloc(sizeof(size)); // holds only the size of the block
    *(size_t *)*devPtr = size;
    return cudaSuccess;
}

cudaError_t cudaFree(void *devPtr)
{
    taken_bytes -= *(size_t *)devPtr;
    free(devPtr);
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "?";
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = device_bytes - taken_bytes;
    *total_bytes = device_bytes;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    (void)device;
    *properties = (struct cudaDeviceProp){.name = "a device"};
    return cudaSuccess;
}

// ---- the tests ----

static struct device_arena arena;

static void begin(size_t has_bytes, size_t keep_bytes)
{
    device_bytes = has_bytes;
    taken_bytes = 0;
    allocations = refusals = 0;
    leaving_bytes = 0;
    device_arena_init(&arena, keep_bytes);
}

// Reserves and takes the memory of a case, and trims the arena. Returns the offset of the memory in
// the arena. `turn`: reserves as for a timed case.
static size_t place(size_t bytes, bool turn)
{
    struct error error;
    size_t total = 0;
    ck_assert_int_eq(device_arena_add(&total, (int64_t)bytes, 1, &error), STATUS_OK);
    ck_assert_int_eq(turn ? device_arena_reserve_turn(&arena, total, &error)
                          : device_arena_reserve(&arena, total, &error),
                     STATUS_OK);
    char *piece = device_arena_take(&arena, (int64_t)bytes, 1);
    device_arena_trim(&arena);
    return (size_t)(piece - arena.base);
}

START_TEST(test_verified_cases_reuse_the_same_memory)
{
    begin(1024 * MIB, 512 * MIB);
    ck_assert_uint_eq(place(20 * MIB, false), 0);
    ck_assert_uint_eq(place(20 * MIB, false), 0);
    ck_assert_int_eq(allocations, 1);
    ck_assert_uint_le(taken_bytes, 64 * MIB);
    device_arena_fini(&arena);
    ck_assert_uint_eq(taken_bytes, 0);
}
END_TEST

START_TEST(test_timed_cases_alternate_memory)
{
    begin(4096 * MIB, 512 * MIB);
    for (size_t i = 0; i < 30; i++)
        ck_assert_uint_eq(place(20 * MIB, true), i % (arena.capacity / (20 * MIB)) * 20 * MIB);
    ck_assert_uint_ge(arena.capacity, DEVICE_ARENA_TURNS);
    ck_assert_int_eq(allocations, 1);
    ck_assert_uint_eq(place(20 * MIB, false), 0);
    ck_assert_uint_eq(place(20 * MIB, true), 20 * MIB);
    device_arena_fini(&arena);
}
END_TEST

START_TEST(test_turns_of_different_sizes_fit)
{
    begin(4096 * MIB, 2048 * MIB);
    srand(1);
    for (int i = 0; i < 2000; i++) {
        size_t bytes = (size_t)rand() % (300 * MIB);
        size_t at = place(bytes, rand() % 4 > 0);
        ck_assert_uint_eq(at % DEVICE_ARENA_ALIGNMENT, 0);
        ck_assert_uint_le(at + bytes, arena.capacity);
    }
    device_arena_fini(&arena);
}
END_TEST

START_TEST(test_turns_need_no_more_than_there_is)
{
    begin(100 * MIB, 512 * MIB);
    ck_assert_uint_eq(place(40 * MIB, true), 0);
    ck_assert_uint_le(taken_bytes, 100 * MIB);
    device_arena_fini(&arena);
    begin(1024 * MIB, 64 * MIB); // turns do not exceed keep_bytes
    ck_assert_uint_eq(place(40 * MIB, true), 0);
    ck_assert_uint_le(arena.capacity, 96 * MIB);
    device_arena_fini(&arena);
}
END_TEST

START_TEST(test_pools_leave_each_other_room)
{
    begin(16384 * MIB, 4096 * MIB);
    (void)place(3000 * MIB, false);
    ck_assert_uint_ge(taken_bytes, 3000 * MIB); // kept, because no other process uses the device
    device_arena_trim(&arena);
    ck_assert_uint_ge(taken_bytes, 3000 * MIB);
    taken_bytes += 1500 * MIB; // by other processes
    device_arena_trim(&arena);
    ck_assert_uint_eq(taken_bytes, 1500 * MIB);
    (void)place(3000 * MIB, false);
    ck_assert_uint_eq(taken_bytes, 1500 * MIB);
    (void)place(300 * MIB, false); // small enough to be kept
    (void)place(300 * MIB, true);
    ck_assert_uint_gt(taken_bytes, 1800 * MIB);
    device_arena_fini(&arena);
    ck_assert_uint_eq(taken_bytes, 1500 * MIB);
}
END_TEST

START_TEST(test_what_is_kept_beside_it_leaves_the_same_room)
{
    begin(16384 * MIB, 4096 * MIB);
    ck_assert_uint_eq(device_arena_beside(&arena, 0), 4096 * MIB);
    taken_bytes = 1500 * MIB; // by this and other processes
    ck_assert_uint_eq(device_arena_beside(&arena, 0), 2596 * MIB);
    ck_assert_uint_eq(device_arena_beside(&arena, 1000 * MIB), 3596 * MIB);
    taken_bytes = 9000 * MIB;
    ck_assert_uint_eq(device_arena_beside(&arena, 1000 * MIB), DEVICE_ARENA_KEPT);
    begin(16384 * MIB, 600 * MIB);
    ck_assert_uint_eq(device_arena_beside(&arena, 0), 600 * MIB);
}
END_TEST

START_TEST(test_memory_of_ended_processes_is_used)
{
    struct error error;
    begin(1024 * MIB, 512 * MIB);
    taken_bytes = leaving_bytes = 600 * MIB;
    ck_assert_int_eq(device_arena_reserve(&arena, 700 * MIB, &error), STATUS_OK);
    ck_assert_uint_ge(arena.capacity, 700 * MIB);
    device_arena_fini(&arena);
    begin(1024 * MIB, 512 * MIB);
    taken_bytes = 600 * MIB; // never freed
    ck_assert_int_eq(device_arena_reserve(&arena, 700 * MIB, &error), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(error.text, "424 of its 1024 MiB free"));
    device_arena_fini(&arena);
}
END_TEST

START_TEST(test_too_much_is_refused_with_the_figures)
{
    struct error error;
    begin(100 * MIB, 512 * MIB);
    ck_assert_int_eq(device_arena_reserve_turn(&arena, 200 * MIB, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(error.text, "needs 200 MiB"));
    ck_assert_ptr_nonnull(strstr(error.text, "100 of its 100 MiB free"));
    ck_assert_uint_eq(place(10 * MIB, true), 0); // the next case is served
    device_arena_fini(&arena);
    ck_assert_uint_eq(taken_bytes, 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("device_arena");
    TCase *turns = tcase_create("turns");
    tcase_add_test(turns, test_verified_cases_reuse_the_same_memory);
    tcase_add_test(turns, test_timed_cases_alternate_memory);
    tcase_add_test(turns, test_turns_of_different_sizes_fit);
    tcase_add_test(turns, test_turns_need_no_more_than_there_is);
    tcase_add_test(turns, test_pools_leave_each_other_room);
    tcase_add_test(turns, test_what_is_kept_beside_it_leaves_the_same_room);
    tcase_add_test(turns, test_memory_of_ended_processes_is_used);
    tcase_add_test(turns, test_too_much_is_refused_with_the_figures);
    suite_add_tcase(s, turns);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
