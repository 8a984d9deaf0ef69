// SPDX-License-Identifier: Apache-2.0
// Instructions of sm_90a for backward, in addition to those of sm90.cuh.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_PARTS_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_PARTS_CUH

#include "kernels/cuda/sm90.cuh"

#define GROUP_THREADS 128

// ---- named barriers and fences ------------------------------------------------------------------

// Arrives at the named barrier `id` of threads_sync() and does not wait.
static __device__ __forceinline__ void threads_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

// Proxy fence for all memory: orders this thread's own accesses and its bulk copies (async proxy)
// on the two sides of the fence.
static __device__ __forceinline__ void fence_all(void)
{
    asm volatile("fence.proxy.async;" : : : "memory");
}

// ---- bulk copies --------------------------------------------------------------------------------

// Bulk reduction: adds fp32 at shared address `from` to the map's box at these coordinates.
// Elements outside of the tensor are skipped. One thread calls, and commits: bulk_commit().
static __device__ __forceinline__ void tensor_add_4d(const CUtensorMap *map, int c0, int c1, int c2,
                                                     int c3, uint32_t from)
{
    asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
                 "[%0, {%1, %2, %3, %4}], [%5];"
                 :
                 : "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(from)
                 : "memory");
}

// Bulk store to the map's box. Otherwise as tensor_add_4d().
static __device__ __forceinline__ void tensor_store_4d(const CUtensorMap *map, int c0, int c1,
                                                       int c2, int c3, uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2, %3, %4}], [%5];"
                 :
                 : "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(from)
                 : "memory");
}

// Bulk store to a box of a matrix, with an L2 policy of l2_policy().
static __device__ __forceinline__ void tensor_store_2d(const CUtensorMap *map, int c0, int c1,
                                                       uint64_t policy, uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
                 "[%0, {%1, %2}], [%3], %4;"
                 :
                 : "l"(map), "r"(c0), "r"(c1), "r"(from), "l"(policy)
                 : "memory");
}

// Prefetches a box into L2.
static __device__ __forceinline__ void tensor_fetch_2d(const CUtensorMap *map, int c0, int c1)
{
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];"
                 :
                 : "l"(map), "r"(c0), "r"(c1)
                 : "memory");
}

static __device__ __forceinline__ void tensor_fetch_4d(const CUtensorMap *map, int c0, int c1,
                                                       int c2, int c3)
{
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];"
                 :
                 : "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}

static __device__ __forceinline__ void bulk_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

// Waits until all commit groups of this thread have been read from shared memory.
static __device__ __forceinline__ void bulk_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
}

// As bulk_wait_read(), for all commit groups but the last.
static __device__ __forceinline__ void bulk_wait_read_but_last(void)
{
    asm volatile("cp.async.bulk.wait_group.read 1;" : : : "memory");
}

// Waits until the writes of all commit groups of this thread are complete.
static __device__ __forceinline__ void bulk_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
}

// ---- matrices -----------------------------------------------------------------------------------

// Stores four 8 x 8 matrices of 16-bit elements, transposed (stmatrix.trans). Lane 8 i + r gives
// the shared address of row r of matrix i. pairs[i] of lane l goes to column l / 4 of matrix i,
// rows 2 (l % 4) and the next. Called by a warp.
static __device__ __forceinline__ void matrices_store(uint32_t address, const uint32_t (&pairs)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                 : "memory");
}

// ---- products -----------------------------------------------------------------------------------

// Descriptors of k-step i, 16 elements of the summed dimension, from the descriptor of the first:
// along<PANEL> of operand_rows() with panels of PANEL bytes, across of operand_columns().
template <int PANEL> struct along {
    uint64_t first;

    __device__ __forceinline__ uint64_t operator()(int i) const
    {
        return first + (i / 4 * PANEL + i % 4 * 32) / 16;
    }
};
struct across {
    uint64_t first;

    __device__ __forceinline__ uint64_t operator()(int i) const
    {
        return first + i * 16 * 128 / 16;
    }
};

// D = A B over STEPS k-steps. a and b return the descriptor of a k-step; the summed dimension of B
// lies along its rows. Issues wgmma without a commit. Called by a warpgroup.
template <typename T, int STEPS, bool A_COLUMNS, int COUNT, class A, class B>
__device__ __forceinline__ void product_of(float (&d)[COUNT], A a, B b)
{
    // The first k-step overwrites D. The empty asm defines D for the compiler; without it, D would
    // be live, and hold registers, from the previous iteration of the caller's loop on.
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "=f"(d[i]));
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        product<T, COUNT * 2>::template ss<A_COLUMNS, false>(d, a(i), b(i), i > 0);
}

// True if T is fp16.
template <typename T> struct type_is_half {
    static constexpr bool value = false;
};
template <> struct type_is_half<__half> {
    static constexpr bool value = true;
};

#endif
