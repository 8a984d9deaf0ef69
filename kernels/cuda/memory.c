// SPDX-License-Identifier: Apache-2.0
// Memory of the backend that is handed out piece by piece and taken back all at once.
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/internal.h"

#define ALIGNMENT       256
#define BLOCK_BYTES_MIN (1 << 20)

// What a pool keeps between two cases at most. The next case may want the memory for its tensors.
#define POOL_BYTES_MAX ((size_t)1 << 30)

static void block_destroy(struct memory_block *block)
{
    if (!block)
        return;
    cudaFreeHost(block->host);
    cudaFree(block->device);
    cudaGetLastError(); // of a device that has failed; whoever waits for it gets to know
    free(block);
}

static struct memory_block *block_create(struct attention_backend *backend, bool pinned,
                                         size_t bytes)
{
    struct memory_block *block = calloc(1, sizeof(*block));
    if (!block) {
        cuda_note(backend, cudaErrorMemoryAllocation, "scratch");
        return NULL;
    }
    cudaError_t error = cudaMalloc((void **)&block->device, bytes);
    if (error == cudaSuccess && pinned)
        error = cudaMallocHost((void **)&block->host, bytes);
    if (cuda_note(backend, error, pinned ? "staging" : "scratch")) {
        block->bytes = bytes;
        return block;
    }
    block_destroy(block);
    return NULL;
}

void memory_pool_fini(struct memory_pool *pool)
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

// Puts one block in the place of several, unless that would be a large one.
static void pool_recycle(struct attention_backend *backend, struct memory_pool *pool)
{
    size_t bytes = pool_bytes(pool);
    pool->stale = false;
    if (pool->blocks && (pool->blocks->next || bytes > POOL_BYTES_MAX)) {
        memory_pool_fini(pool);
        if (bytes <= POOL_BYTES_MAX)
            pool->blocks = block_create(backend, pool->pinned, bytes);
    }
    if (pool->blocks)
        pool->blocks->used = 0;
}

// Returns the block whose last piece is the new one, and in *offset where that begins.
static struct memory_block *pool_take(struct attention_backend *backend, struct memory_pool *pool,
                                      size_t bytes, size_t *offset)
{
    if (pool->stale)
        pool_recycle(backend, pool);
    if (bytes > SIZE_MAX / 4) {
        cuda_note(backend, cudaErrorMemoryAllocation, "scratch of an absurd size");
        return NULL;
    }
    bytes = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT; // no two pieces are one, not even of 0
    struct memory_block *block = pool->blocks;
    if (!block || block->bytes - block->used < bytes) {
        size_t wanted = pool_bytes(pool);
        if (wanted > POOL_BYTES_MAX)
            wanted = POOL_BYTES_MAX;
        if (wanted < BLOCK_BYTES_MIN)
            wanted = BLOCK_BYTES_MIN;
        block = block_create(backend, pool->pinned, bytes > wanted ? bytes : wanted);
        if (!block)
            return NULL;
        block->next = pool->blocks;
        pool->blocks = block;
    }
    *offset = block->used;
    block->used += bytes;
    return block;
}

void *staging_take(struct attention_backend *backend, size_t bytes, void **device)
{
    size_t offset;
    struct memory_block *block = pool_take(backend, &backend->staging, bytes, &offset);
    if (!block)
        return NULL;
    *device = block->device + offset;
    return block->host + offset;
}

void staging_push(struct attention_backend *backend, void *device, const void *host, size_t bytes)
{
    if (bytes > 0)
        cuda_note(backend,
                  cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, backend->stream),
                  "a copy to the device");
}

void staging_pull(struct attention_backend *backend, void *host, const void *device, size_t bytes)
{
    if (bytes > 0)
        cuda_note(backend,
                  cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, backend->stream),
                  "a copy from the device");
}

void *staging_copy(struct attention_backend *backend, const void *host, size_t bytes)
{
    void *device, *staged = staging_take(backend, bytes, &device);
    if (!staged)
        return NULL;
    if (bytes > 0)
        memcpy(staged, host, bytes);
    staging_push(backend, device, staged, bytes);
    return device;
}

void *scratch_take(struct attention_backend *backend, size_t bytes)
{
    size_t offset;
    struct memory_block *block = pool_take(backend, &backend->scratch, bytes, &offset);
    return block ? block->device + offset : NULL;
}
