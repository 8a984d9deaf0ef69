// SPDX-License-Identifier: Apache-2.0
// Building blocks of the attention kernels on sm_80 and later: swizzled tiles in shared memory,
// asynchronous copies into them, loads of fragments from them, and matrix products of fragments.
//
// Fragments of mma.m16n8k16, with g = lane / 4 and t = lane % 4 of a warp:
//   A (16 x 16): a[0] (g, 2t..2t+1)  a[1] (g+8, 2t..)  a[2] (g, 2t+8..)  a[3] (g+8, 2t+8..)
//   B (16 x 8, k x n): b[0] (k 2t..2t+1, n g)  b[1] (k 2t+8.., n g)
//   C (16 x 8): c[0], c[1] (g, 2t..2t+1)  c[2], c[3] (g+8, 2t..2t+1)
// Two neighbouring C fragments, packed in pairs, are therefore the A fragment of the next product.
#ifndef CPATTN_KERNELS_CUDA_MMA_CUH
#define CPATTN_KERNELS_CUDA_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define WARP_LANES 32

// ---- element types ------------------------------------------------------------------------------

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}

static __device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

static __device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}

// Packs two values, rounded to T; `low` in the lower half.
template <typename T> __device__ __forceinline__ uint32_t pack(float low, float high);

template <> __device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <> __device__ __forceinline__ uint32_t pack<__half>(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// ---- products -----------------------------------------------------------------------------------

// c += A B with the fragments above.
template <typename T>
__device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1);

template <>
__device__ __forceinline__ void mma<__nv_bfloat16>(float c[4], const uint32_t a[4], uint32_t b0,
                                                   uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma<__half>(float c[4], const uint32_t a[4], uint32_t b0,
                                            uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- tiles in shared memory ---------------------------------------------------------------------
// A tile has `rows` x COLUMNS elements of 16 bits, COLUMNS a multiple of 64. It begins at a
// multiple of 128 bytes. It is swizzled: the 16-byte chunk c of row r lies in the place of
// chunk c ^ (r % 8). So chunks c of eight rows lie in eight different groups of banks.

#define CHUNK_BYTES    16
#define CHUNK_ELEMENTS 8

static __device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

// Byte offset of a chunk of a row in the tile, swizzled.
template <int COLUMNS> __device__ __forceinline__ uint32_t tile_offset(int row, int chunk)
{
    static_assert(COLUMNS % 64 == 0, "a row is a multiple of 128 bytes");
    return (uint32_t)(row * (COLUMNS * 2) + ((chunk ^ (row & 7)) * CHUNK_BYTES));
}

// Address that this lane passes to ldmatrix, for the 16 x 16 block of a tile that begins at `row`
// and column 0. fragment_step() moves it to other blocks.
//
// Rows first: lanes 0-15 address the rows of the left half, lanes 16-31 those of the right half.
// Loads A from a tile [m][k] and, transposed, two B from a tile [k][n] (b[0], b[1] of n 0-7, then
// of n 8-15).
template <int COLUMNS>
__device__ __forceinline__ uint32_t fragment_rows_first(uint32_t tile, int row, int lane)
{
    return tile + tile_offset<COLUMNS>(row + (lane & 15), lane >> 4);
}

// The same with halves first: lanes 0-7 address rows 0-7 of the left half, lanes 8-15 the same rows
// of the right half, lanes 16-31 likewise rows 8-15. Loads two B from a tile [n][k] (b[0], b[1] of
// n 0-7, then of n 8-15) and, transposed, A from a tile [k][m].
template <int COLUMNS>
__device__ __forceinline__ uint32_t fragment_halves_first(uint32_t tile, int row, int lane)
{
    return tile + tile_offset<COLUMNS>(row + (lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
}

// Moves such an address `row_step` rows down (a multiple of 8) and `step` x 16 columns right. Both
// should be compile-time constants.
template <int COLUMNS>
__device__ __forceinline__ uint32_t fragment_step(uint32_t fragment, int row_step, int step)
{
    return (fragment ^ (uint32_t)((step & 3) << 5)) +
           (uint32_t)((step >> 2) * 128 + row_step * COLUMNS * 2);
}

static __device__ __forceinline__ void load_fragment(uint32_t f[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void load_fragment_transposed(uint32_t f[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address)
                 : "memory");
}

// ---- asynchronous copies ------------------------------------------------------------------------

// Copies 16 aligned bytes from global to shared memory, by cp.async. If not `valid`, writes zeros
// and reads nothing; `source` must be a global address then, too.
static __device__ __forceinline__ void copy_chunk(uint32_t destination, const void *source,
                                                  bool valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :
                 : "r"(destination), "l"(source), "r"(valid ? CHUNK_BYTES : 0)
                 : "memory");
}

static __device__ __forceinline__ void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING commit groups of this thread are pending. Copies of other threads are
// visible only after a barrier.
template <int PENDING> __device__ __forceinline__ void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- reductions over lanes, functions -----------------------------------------------------------

// Reductions over the four lanes that hold a row of a C fragment. All four get the result.
static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

static __device__ __forceinline__ float warp_max(float x)
{
    for (int step = 16; step > 0; step >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

static __device__ __forceinline__ float warp_sum(float x)
{
    for (int step = 16; step > 0; step >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// 2^x by the special function unit; 2^-inf is 0.
static __device__ __forceinline__ float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// tanh(x) = 1 - 2 / (e^2x + 1). Small absolute error; for small |x| the relative error is large.
struct tanh_absolute {
    static __device__ __forceinline__ float of(float x)
    {
        return 1 - __fdividef(2, fast_exp2(x * 2.885390081777927f) + 1);
    }
};

// tanh(x) with a series for small |x|. The relative error is small, too.
struct tanh_relative {
    static __device__ __forceinline__ float of(float x)
    {
        float z = x * x, series = fmaf(z, fmaf(z, fmaf(z, -17 / 315.0f, 2 / 15.0f), -1 / 3.0f), 1);
        return fabsf(x) < 0.25f ? x * series : tanh_absolute::of(x);
    }
};

struct as_it_is {
    static __device__ __forceinline__ float of(float x)
    {
        return x;
    }
};

// ---- atomic maximum -----------------------------------------------------------------------------

// Atomically raises *where to x, which must not be NaN. Positive floats are ordered as their bits
// are, negative ones in reverse order. The result does not depend on the order of the calls.
static __device__ __forceinline__ void atomic_max(float *where, float x)
{
    x += 0.0f; // -0 to +0
    if (x >= 0)
        atomicMax((int *)where, __float_as_int(x));
    else
        atomicMin((unsigned *)where, __float_as_uint(x));
}

#endif
