// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_kernel.h"

#define THREADS     512
// Each thread block takes a multiprocessor from concurrent attention.
#define BLOCKS_MAX  8
#define BLOCK_BYTES (32 << 10) // bytes per thread block while there are fewer than BLOCKS_MAX
#define UNROLL      4          // units that a thread loads before it stores them

__device__ static void raise(uint32_t *counter, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}

// Spins until the counter has reached `value`, with acquire. The comparison tests the sign of the
// difference, so counters may wrap around.
__device__ static void await(const uint32_t *counter, uint32_t value)
{
    uint32_t found;
    do
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(counter) : "memory");
    while ((int32_t)(found - value) < 0);
}

// Raises the ready counter at every peer that sends to this rank. Thread p handles peer p.
__device__ static void peers_tell(const struct kernel_exchange &x)
{
    int peer = (int)threadIdx.x;
    if (peer < PEER_KERNEL_RANKS && (x.receives >> peer & 1))
        raise(&x.theirs[peer]->ready[x.rank], x.own->received[peer] + 1);
}

// Byte offset of unit i: contiguous units.
template <typename Unit> struct whole {
    __device__ int64_t operator()(uint32_t i) const
    {
        return (int64_t)i * sizeof(Unit);
    }
};

// Byte offset of unit i: pieces of `width` units, `rows` pieces per block.
template <typename Unit> struct pieces {
    uint32_t width, rows;
    int64_t stride, block;
    __device__ int64_t operator()(uint32_t i) const
    {
        uint32_t piece = i / width, x = i % width;
        return piece / rows * block + piece % rows * stride + (int64_t)x * sizeof(Unit);
    }
};

// Copies `count` units in a grid-stride loop. All threads of the grid call it.
template <typename Unit, class From, class To>
__device__ static void units_copy(const struct kernel_copy &c, uint32_t count, const From &from,
                                  const To &to)
{
    uint32_t step = gridDim.x * THREADS, i = blockIdx.x * THREADS + threadIdx.x;
    for (; (uint64_t)i + (UNROLL - 1) * step < count; i += UNROLL * step) {
        Unit held[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            held[k] = *(const Unit *)(c.from + from(i + k * step));
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            *(Unit *)(c.to + to(i + k * step)) = held[k];
    }
    for (; i < count; i += step)
        *(Unit *)(c.to + to(i)) = *(const Unit *)(c.from + from(i));
}

// Copies in units whose size divides all addresses and strides.
template <typename Unit> __device__ static void bytes_copy(const struct kernel_copy &c)
{
    uint32_t width = c.bytes / sizeof(Unit), count = width * c.rows * c.blocks;
    if (count == width) {
        units_copy<Unit>(c, count, whole<Unit>(), whole<Unit>());
        return;
    }
    const pieces<Unit> from = {width, c.rows, c.from_stride, c.from_block};
    const pieces<Unit> to = {width, c.rows, c.to_stride, c.to_block};
    units_copy<Unit>(c, count, from, to);
}

// Waits until the peer's destination is free, then copies in the widest possible unit. All threads
// of the grid call it.
__device__ static void copy_make(const struct kernel_exchange &x, const struct kernel_copy &c)
{
    if (x.sends >> c.peer & 1) {
        if (threadIdx.x == 0)
            await(&x.own->ready[c.peer], x.own->sent[c.peer] + 1);
        __syncthreads();
    }
    uint64_t ends = (uint64_t)c.from | (uint64_t)c.to | c.bytes | (uint64_t)c.from_stride |
                    (uint64_t)c.to_stride | (uint64_t)c.from_block | (uint64_t)c.to_block;
    if (ends % sizeof(uint4) == 0)
        bytes_copy<uint4>(c);
    else if (ends % sizeof(uint32_t) == 0)
        bytes_copy<uint32_t>(c);
    else
        bytes_copy<char>(c);
}

// Ends the exchange. All threads of the last thread block call it, after the whole grid has copied.
// Thread p raises the arrived counter at peer p and waits for the bytes of peer p. Thread 0 then
// writes mark and time.
__device__ static void exchange_end(const struct kernel_exchange &x)
{
    int peer = (int)threadIdx.x;
    if (peer < PEER_KERNEL_RANKS && (x.sends >> peer & 1))
        raise(&x.theirs[peer]->arrived[x.rank], ++x.own->sent[peer]);
    if (peer < PEER_KERNEL_RANKS && (x.receives >> peer & 1))
        await(&x.own->arrived[peer], ++x.own->received[peer]);
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    if (x.mark)
        *(volatile uint32_t *)x.mark = x.mark_value;
    if (x.time) {
        unsigned long long now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        *(volatile uint64_t *)x.time = now;
    }
}

__global__ __launch_bounds__(THREADS) static void exchange_kernel(
    const __grid_constant__ struct kernel_exchange x)
{
    __shared__ bool is_last;
    if (x.first && blockIdx.x == 0)
        peers_tell(x);
    for (int i = 0; i < x.copy_count; i++)
        copy_make(x, x.copies[i]);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system(); // orders the block's copies before its increment of `blocks`
        is_last = atomicInc(&x.own->blocks, gridDim.x - 1) == gridDim.x - 1;
        __threadfence_system();
    }
    __syncthreads();
    if (is_last && x.last)
        exchange_end(x);
}

cudaError_t peer_kernel_put(const struct kernel_exchange *x, cudaStream_t stream)
{
    uint64_t bytes = 0;
    for (int i = 0; i < x->copy_count; i++)
        bytes += (uint64_t)x->copies[i].bytes * x->copies[i].rows * x->copies[i].blocks;
    uint64_t blocks = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    blocks = blocks < 1 ? 1 : blocks > BLOCKS_MAX ? BLOCKS_MAX : blocks;
    exchange_kernel<<<(unsigned)blocks, THREADS, 0, stream>>>(*x);
    return cudaGetLastError();
}
