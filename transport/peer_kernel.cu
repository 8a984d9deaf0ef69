// SPDX-License-Identifier: Apache-2.0
#include "transport/peer_kernel.h"

#define THREADS     512
// Beside attention each thread block takes a multiprocessor from it.
#define BLOCKS_MAX  8
#define BLOCK_BYTES (32 << 10) // at least, of a thread block
#define UNROLL      4

__device__ static void raise(uint32_t *counter, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}

// As a distance, so that counters may wrap around.
__device__ static void await(const uint32_t *counter, uint32_t value)
{
    uint32_t found;
    do
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(found) : "l"(counter) : "memory");
    while ((int32_t)(found - value) < 0);
}

// Tells every peer that its destinations at this rank are free.
__device__ static void peers_tell(const struct kernel_exchange &x)
{
    int peer = (int)threadIdx.x;
    if (peer < PEER_KERNEL_RANKS && (x.receives >> peer & 1))
        raise(&x.theirs[peer]->ready[x.rank], x.own->received[peer] + 1);
}

// Where a unit lies on one side: units one behind the other,
template <typename Unit> struct whole {
    __device__ int64_t operator()(uint32_t i) const
    {
        return (int64_t)i * sizeof(Unit);
    }
};

// or in pieces.
template <typename Unit> struct pieces {
    uint32_t width, rows;
    int64_t stride, block;
    __device__ int64_t operator()(uint32_t i) const
    {
        uint32_t piece = i / width, x = i % width;
        return piece / rows * block + piece % rows * stride + (int64_t)x * sizeof(Unit);
    }
};

// All thread blocks copy their parts of `count` units.
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

// When all bytes of this rank have been sent: tells the peers, and waits for theirs.
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
        __threadfence_system(); // what the block has copied comes before what follows its number
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
