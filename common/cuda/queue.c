// SPDX-License-Identifier: Apache-2.0
#include "common/cuda/queue.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT       256
#define BLOCK_BYTES_MIN (1 << 20)

// Most memory that a pool keeps between two cases, since the next case may need memory for tensors.
#define POOL_BYTES_MAX ((size_t)1 << 30)

// ---- errors -------------------------------------------------------------------------------------

bool queue_note(struct cuda_queue *q, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    cudaGetLastError(); // clears the error, so that queue_launched() does not note it again
    if (q->error == cudaSuccess) {
        q->error = error;
        q->failed = what;
    }
    return false;
}

bool queue_launched(struct cuda_queue *q, const char *what)
{
    return queue_note(q, cudaGetLastError(), what);
}

// True for errors of a running kernel. The next CUDA call and all later ones return them.
static bool made_by_kernel(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
        return true;
    default:
        return false;
    }
}

enum status queue_report(struct cuda_queue *q, struct error *error)
{
    cudaError_t found = q->error;
    q->error = cudaSuccess;
    if (found == cudaSuccess)
        return STATUS_OK;
    if (found == cudaErrorMemoryAllocation)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "device %d: no memory left for %s",
                         q->device, q->failed);
    return error_set(error, STATUS_INTERNAL, "device %d: %s%s failed: %s (%s)", q->device,
                     made_by_kernel(found) ? "a kernel before " : "", q->failed,
                     cudaGetErrorString(found), cudaGetErrorName(found));
}

// ---- memory -------------------------------------------------------------------------------------

static void block_destroy(struct memory_block *block)
{
    if (!block)
        return;
    cudaFreeHost(block->host);
    cudaFree(block->device);
    cudaGetLastError(); // ignores errors of a failed device; queue_finish() reports them
    free(block);
}

static cudaError_t block_create(bool pinned, size_t bytes, struct memory_block **created)
{
    struct memory_block *block = calloc(1, sizeof(*block));
    if (!block)
        return cudaErrorMemoryAllocation;
    cudaError_t error = cudaMalloc((void **)&block->device, bytes);
    if (error == cudaSuccess && pinned)
        error = cudaMallocHost((void **)&block->host, bytes);
    if (error != cudaSuccess) {
        block_destroy(block);
        return error;
    }
    block->bytes = bytes;
    *created = block;
    return cudaSuccess;
}

static void memory_pool_fini(struct memory_pool *pool)
{
    while (pool->blocks) {
        struct memory_block *block = pool->blocks;
        pool->blocks = block->next;
        block_destroy(block);
    }
}

static size_t pool_bytes(const struct memory_pool *pool)
{
    size_t bytes = 0;
    for (const struct memory_block *block = pool->blocks; block; block = block->next)
        bytes += block->bytes;
    return bytes;
}

// Frees all pieces. Replaces several blocks by one of their total size; frees all blocks if the
// total exceeds POOL_BYTES_MAX. If the one block cannot be allocated, the pool has no blocks.
static void pool_recycle(struct memory_pool *pool)
{
    size_t bytes = pool_bytes(pool);
    pool->stale = false;
    if (pool->blocks && (pool->blocks->next || bytes > POOL_BYTES_MAX)) {
        memory_pool_fini(pool);
        if (bytes <= POOL_BYTES_MAX)
            (void)block_create(pool->pinned, bytes, &pool->blocks);
    }
    if (pool->blocks)
        pool->blocks->used = 0;
}

// Adds a block for a piece of this size. A failure is noted.
static bool pool_grow(struct cuda_queue *q, struct memory_pool *pool, size_t bytes)
{
    struct memory_block *block;
    size_t wanted = pool_bytes(pool);
    if (wanted > POOL_BYTES_MAX)
        wanted = POOL_BYTES_MAX;
    if (wanted < BLOCK_BYTES_MIN)
        wanted = BLOCK_BYTES_MIN;
    if (!queue_note(q, block_create(pool->pinned, bytes > wanted ? bytes : wanted, &block),
                    pool->pinned ? "staging" : "scratch"))
        return false;
    block->next = pool->blocks;
    pool->blocks = block;
    return true;
}

// Takes a piece. Returns its block, and in *offset where the piece begins; NULL: out of memory.
static struct memory_block *pool_take(struct cuda_queue *q, struct memory_pool *pool, size_t bytes,
                                      size_t *offset)
{
    if (pool->stale)
        pool_recycle(pool);
    if (bytes > SIZE_MAX / 4) {
        queue_note(q, cudaErrorMemoryAllocation, "scratch of an absurd size");
        return NULL;
    }
    bytes = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT; // > 0: pieces of 0 bytes differ, too
    if ((!pool->blocks || pool->blocks->bytes - pool->blocks->used < bytes) &&
        !pool_grow(q, pool, bytes))
        return NULL;
    *offset = pool->blocks->used;
    pool->blocks->used += bytes;
    return pool->blocks;
}

void *queue_stage(struct cuda_queue *q, size_t bytes, void **device)
{
    size_t offset;
    struct memory_block *block = pool_take(q, &q->staging, bytes, &offset);
    if (!block)
        return NULL;
    *device = block->device + offset;
    return block->host + offset;
}

void queue_push(struct cuda_queue *q, void *device, const void *host, size_t bytes)
{
    if (bytes > 0)
        queue_note(q, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, q->stream),
                   "a copy to the device");
}

void queue_pull(struct cuda_queue *q, void *host, const void *device, size_t bytes)
{
    if (bytes > 0)
        queue_note(q, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, q->stream),
                   "a copy from the device");
}

void *queue_copy(struct cuda_queue *q, const void *host, size_t bytes)
{
    void *device, *staged = queue_stage(q, bytes, &device);
    if (!staged)
        return NULL;
    if (bytes > 0)
        memcpy(staged, host, bytes);
    queue_push(q, device, staged, bytes);
    return device;
}

void *queue_scratch(struct cuda_queue *q, size_t bytes)
{
    size_t offset;
    struct memory_block *block = pool_take(q, &q->scratch, bytes, &offset);
    return block ? block->device + offset : NULL;
}

// ---- life ---------------------------------------------------------------------------------------

cudaError_t queue_init(struct cuda_queue *q)
{
    q->staging.pinned = true;
    cudaError_t found = cudaGetDevice(&q->device);
    if (found == cudaSuccess)
        found = cudaDeviceGetAttribute(&q->sm_count, cudaDevAttrMultiProcessorCount, q->device);
    if (found == cudaSuccess)
        found = cudaDeviceGetAttribute(&q->shared_bytes_max,
                                       cudaDevAttrMaxSharedMemoryPerBlockOptin, q->device);
    if (found == cudaSuccess)
        found = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);
    return found;
}

void queue_fini(struct cuda_queue *q)
{
    if (q->stream) {
        cudaStreamSynchronize(q->stream);
        cudaStreamDestroy(q->stream);
    }
    memory_pool_fini(&q->staging);
    memory_pool_fini(&q->scratch);
    cudaGetLastError();
}

enum status queue_finish(struct cuda_queue *q, struct error *error)
{
    queue_note(q, cudaStreamSynchronize(q->stream), "the end of the work");
    q->staging.stale = q->scratch.stale = true;
    return queue_report(q, error);
}
