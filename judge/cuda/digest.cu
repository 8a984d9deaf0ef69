// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda/digest_cuda.h"
#include "judge/cuda/dtype.cuh"
#include "judge/digest_word.h"

#define THREADS       256
#define LANES         32
#define UNROLL        4
#define BLOCKS_PER_SM 8

// Adds digest_word() of all words in `units` units of WIDTH words to *sum. The order of the atomics
// does not matter, because integer addition is associative.
template <int WIDTH>
__global__ __launch_bounds__(THREADS) void digest_kernel(const uint64_t *words, int64_t units,
                                                         unsigned long long *sum)
{
    uint64_t mine = 0;
    int64_t step = (int64_t)gridDim.x * THREADS;
    int64_t unit = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    for (; unit + (UNROLL - 1) * step < units; unit += UNROLL * step) {
        vec<uint64_t, WIDTH> got[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            got[k] = vec_load<WIDTH>(words + (unit + k * step) * WIDTH);
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            for (int w = 0; w < WIDTH; w++)
                mine += digest_word(got[k].at[w], (unit + k * step) * WIDTH + w);
    }
    for (; unit < units; unit += step)
        for (int w = 0; w < WIDTH; w++)
            mine += digest_word(words[unit * WIDTH + w], unit * WIDTH + w);
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        mine += __shfl_xor_sync(0xffffffff, mine, distance);
    if (threadIdx.x % LANES == 0)
        atomicAdd(sum, (unsigned long long)mine);
}

// Adds the remaining words, which do not fill a unit, and the last bytes, which do not fill a word.
// One thread.
__global__ void digest_rest_kernel(const char *data, int64_t first, int64_t bytes,
                                   unsigned long long *sum)
{
    for (int64_t at = first; at < bytes; at += 8) {
        uint64_t word = 0;
        for (int i = 0; i < 8 && at + i < bytes; i++)
            word |= (uint64_t)(uint8_t)data[at + i] << 8 * i;
        *sum += digest_word(word, at / 8);
    }
}

const uint64_t *digest_cuda_sum(struct cuda_queue *queue, const void *data, size_t bytes)
{
    void *device;
    uint64_t *host = (uint64_t *)queue_stage(queue, sizeof(*host), &device);
    if (!host)
        return NULL;
    queue_note(queue, cudaMemsetAsync(device, 0, sizeof(*host), queue->stream), "digest");
    bool wide = aligned(data, 16);
    int64_t unit_bytes = wide ? 16 : 8, units = (int64_t)bytes / unit_bytes;
    int64_t blocks = (units + THREADS - 1) / THREADS, most = queue->sm_count * BLOCKS_PER_SM;
    blocks = blocks < most ? blocks : most;
    unsigned long long *sum = (unsigned long long *)device;
    if (units > 0 && wide)
        digest_kernel<2>
            <<<(unsigned)blocks, THREADS, 0, queue->stream>>>((const uint64_t *)data, units, sum);
    else if (units > 0)
        digest_kernel<1>
            <<<(unsigned)blocks, THREADS, 0, queue->stream>>>((const uint64_t *)data, units, sum);
    queue_launched(queue, "digest");
    if (units * unit_bytes < (int64_t)bytes) {
        digest_rest_kernel<<<1, 1, 0, queue->stream>>>((const char *)data, units * unit_bytes,
                                                       (int64_t)bytes, sum);
        queue_launched(queue, "digest");
    }
    queue_pull(queue, host, device, sizeof(*host));
    return host;
}
