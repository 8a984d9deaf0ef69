// SPDX-License-Identifier: Apache-2.0
// What backward needs of sm_90a beside sm90.cuh.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_PARTS_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_PARTS_CUH

#include "kernels/cuda/sm90.cuh"

#define GROUP_THREADS 128

// ---- barriers -----------------------------------------------------------------------------------

// Counts as one of those who threads_sync() waits for, and goes on.
static __device__ __forceinline__ void threads_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

// Puts accesses of all memory by this thread and bulk copies into the order of the program.
static __device__ __forceinline__ void fence_all(void)
{
    asm volatile("fence.proxy.async;" : : : "memory");
}

// ---- bulk copies --------------------------------------------------------------------------------

// Adds fp32 from shared memory to the map's box at these coordinates; outside of the tensor nothing
// happens.
static __device__ __forceinline__ void tensor_add_4d(const CUtensorMap *map, int c0, int c1, int c2,
                                                     int c3, uint32_t from)
{
    asm volatile("cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
                 "[%0, {%1, %2, %3, %4}], [%5];"
                 :
                 : "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(from)
                 : "memory");
}

// Writes it there.
static __device__ __forceinline__ void tensor_store_4d(const CUtensorMap *map, int c0, int c1,
                                                       int c2, int c3, uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2, %3, %4}], [%5];"
                 :
                 : "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(from)
                 : "memory");
}

// Writes it, instead of adding, to a box of a matrix, with a policy of l2_policy().
static __device__ __forceinline__ void tensor_store_2d(const CUtensorMap *map, int c0, int c1,
                                                       uint64_t policy, uint32_t from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
                 "[%0, {%1, %2}], [%3], %4;"
                 :
                 : "l"(map), "r"(c0), "r"(c1), "r"(from), "l"(policy)
                 : "memory");
}

// Has a box of a matrix come into L2.
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

// Until what this thread committed has been read from shared memory; until it is in memory.
static __device__ __forceinline__ void bulk_wait_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" : : : "memory");
}

// The same of all but what it committed last.
static __device__ __forceinline__ void bulk_wait_read_but_last(void)
{
    asm volatile("cp.async.bulk.wait_group.read 1;" : : : "memory");
}

static __device__ __forceinline__ void bulk_wait(void)
{
    asm volatile("cp.async.bulk.wait_group 0;" : : : "memory");
}

// ---- matrices -----------------------------------------------------------------------------------

// Four 8 x 8 matrices; lane 8 i + r gives the address of row r of matrix i, in which this lane's
// pair of it is a column's.
static __device__ __forceinline__ void matrices_store(uint32_t address, const uint32_t (&pairs)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                 : "memory");
}

// ---- products -----------------------------------------------------------------------------------

// Step i, of 16 elements of the summed dimension, of operand_rows() with panels of PANEL bytes and
// of operand_columns().
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

// D = A B over STEPS of them, B along the rows.
template <typename T, int STEPS, bool A_COLUMNS, int COUNT, class A, class B>
__device__ __forceinline__ void product_of(float (&d)[COUNT], A a, B b)
{
    // The first step reads nothing of D. Without this, D would take registers from the last round
    // of the loop on.
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "=f"(d[i]));
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        product<T, COUNT * 2>::template ss<A_COLUMNS, false>(d, a(i), b(i), i > 0);
}

// Whether T is fp16.
template <typename T> struct type_is_half {
    static constexpr bool value = false;
};
template <> struct type_is_half<__half> {
    static constexpr bool value = true;
};

#endif
