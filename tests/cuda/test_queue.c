// SPDX-License-Identifier: Apache-2.0
// Tests the memory of a queue with a simulated allocator. Needs the CUDA headers, but no device.
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/cuda/queue.h"
#include "tests/support/runner.h"

#define MIB ((size_t)1 << 20)

static size_t largest_bytes; // larger allocations fail
static cudaError_t failure, last_error;
static int allocations, blocks; // successful ones so far; those that are not freed

// ---- the runtime ----

static cudaError_t allocate(void **memory, size_t size)
{
    if (size > largest_bytes)
        return last_error = failure;
    *memory = malloc(1);
    allocations++;
    blocks++;
    return cudaSuccess;
}

static cudaError_t release(void *memory)
{
    blocks -= memory != NULL;
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    return allocate(devPtr, size);
}

cudaError_t cudaMallocHost(void **ptr, size_t size)
{
    return allocate(ptr, size);
}

cudaError_t cudaFree(void *devPtr)
{
    return release(devPtr);
}

cudaError_t cudaFreeHost(void *ptr)
{
    return release(ptr);
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    (void)error;
    return "?";
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "?";
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    (void)attr;
    (void)device;
    *value = 1;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    (void)flags;
    *pStream = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)dst;
    (void)src;
    (void)count;
    (void)kind;
    (void)stream;
    return cudaSuccess;
}

// ---- the tests ----

static struct cuda_queue queue;

static void begin(void)
{
    largest_bytes = 1024 * MIB;
    failure = cudaErrorMemoryAllocation;
    allocations = 0;
    ck_assert_int_eq(queue_init(&queue), cudaSuccess);
}

static void end(void)
{
    queue_fini(&queue);
    ck_assert_int_eq(blocks, 0);
}

static void *take(bool pinned, size_t bytes)
{
    void *device;
    return pinned ? queue_stage(&queue, bytes, &device) : queue_scratch(&queue, bytes);
}

static enum status finish(void)
{
    struct error error;
    return queue_finish(&queue, &error);
}

// Leaves the pool with three stale blocks of 11, 11 and 22 MiB.
static void leave_blocks(bool pinned)
{
    begin();
    for (int i = 0; i < 3; i++)
        ck_assert_ptr_nonnull(take(pinned, 11 * MIB - 1));
    ck_assert_int_eq(finish(), STATUS_OK);
}

START_TEST(test_blocks_are_merged)
{
    leave_blocks(_i);
    allocations = 0;
    ck_assert_ptr_nonnull(take(_i, 40 * MIB));
    ck_assert_int_eq(finish(), STATUS_OK);
    ck_assert_ptr_nonnull(take(_i, 40 * MIB));
    ck_assert_int_eq(finish(), STATUS_OK);
    ck_assert_int_eq(allocations, _i ? 2 : 1);
    end();
}
END_TEST

START_TEST(test_blocks_that_cannot_be_merged_are_no_error)
{
    leave_blocks(_i);
    largest_bytes = 30 * MIB;
    ck_assert_ptr_nonnull(take(_i, 20 * MIB));
    ck_assert_int_eq(finish(), STATUS_OK);
    ck_assert_int_eq(last_error, cudaSuccess);
    end();
}
END_TEST

START_TEST(test_a_piece_that_does_not_fit_is_an_error)
{
    leave_blocks(_i);
    largest_bytes = 30 * MIB;
    ck_assert_ptr_null(take(_i, 31 * MIB));
    ck_assert_int_eq(finish(), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(finish(), STATUS_OK);
    end();
}
END_TEST

START_TEST(test_a_device_that_fails_is_an_error)
{
    leave_blocks(_i);
    largest_bytes = 0;
    failure = cudaErrorIllegalAddress;
    ck_assert_ptr_null(take(_i, MIB));
    ck_assert_int_eq(finish(), STATUS_INTERNAL);
    end();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("queue");
    TCase *memory = tcase_create("memory");
    tcase_add_loop_test(memory, test_blocks_are_merged, 0, 2);
    tcase_add_loop_test(memory, test_blocks_that_cannot_be_merged_are_no_error, 0, 2);
    tcase_add_loop_test(memory, test_a_piece_that_does_not_fit_is_an_error, 0, 2);
    tcase_add_loop_test(memory, test_a_device_that_fails_is_an_error, 0, 2);
    suite_add_tcase(s, memory);
    return s;
}

int main(void)
{
    return runner_run(suite());
}
