// SPDX-License-Identifier: Apache-2.0
// Matrix products of a warp with 16-bit elements on the tensor cores (sm_80 and later).
//
// A warp multiplies A (16 x 16) by B (16 x 8). With g = lane / 4 and t = lane % 4 a lane holds
//   A: a[0] (g, 2t..2t+1)  a[1] (g + 8, 2t..)  a[2] (g, 2t + 8..)  a[3] (g + 8, 2t + 8..)
//   B: b[0] (k 2t..2t+1, n g)  b[1] (k 2t + 8.., n g)
//   C: c[0], c[1] (g, 2t..2t+1)  c[2], c[3] (g + 8, 2t..2t+1)
// So two adjacent C fragments, packed in pairs, form an A fragment.
//
// Tensor cores add in fp32 and truncate, so a long sum in one accumulator is biased towards zero.
// Here each accumulator starts at zero and is soon added to the total with a rounded addition:
// scores after every 16 elements of a row, weighted sums after every HMMA_STEP columns.
#ifndef CPATTN_JUDGE_CUDA_HMMA_CUH
#define CPATTN_JUDGE_CUDA_HMMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define HMMA_ROWS  16
#define HMMA_DEPTH 16
#define HMMA_TILE  8  // columns of a C fragment
#define HMMA_STEP  64 // columns whose weights are computed at a time
#define HMMA_GROUP 32 // all widths are multiples of it

// Row pitch in shared memory, in bytes: an odd number of 16-byte units, so that reads of eight rows
// have no bank conflicts.
#define HMMA_PITCH(width) ((width)*2 + 16)

// ---- element types ------------------------------------------------------------------------------
// A weight is stored as its value rounded to the dtype, and the rest times REST. Without this
// factor the rest of small weights would underflow in fp16.

struct hmma_bf16 {
    static constexpr float REST = 1;

    // Rounds two values and packs them, `low` in the lower half.
    static __device__ __forceinline__ uint32_t pack(float low, float high)
    {
        uint32_t pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    }
    static __device__ __forceinline__ float low(uint32_t pair)
    {
        return __uint_as_float(pair << 16);
    }
    static __device__ __forceinline__ float high(uint32_t pair)
    {
        return __uint_as_float(pair & 0xffff0000u);
    }
    static __device__ __forceinline__ void mma(float d[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1, const float c[4])
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
              "f"(c[2]), "f"(c[3]));
    }
};

struct hmma_fp16 {
    static constexpr float REST = 2048;

    static __device__ __forceinline__ uint32_t pack(float low, float high)
    {
        uint32_t pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
        return pair;
    }
    static __device__ __forceinline__ float low(uint32_t pair)
    {
        return __half2float(__ushort_as_half((unsigned short)pair));
    }
    static __device__ __forceinline__ float high(uint32_t pair)
    {
        return __half2float(__ushort_as_half((unsigned short)(pair >> 16)));
    }
    static __device__ __forceinline__ void mma(float d[4], const uint32_t a[4], uint32_t b0,
                                               uint32_t b1, const float c[4])
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
            : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
              "f"(c[2]), "f"(c[3]));
    }
};

// ---- shared memory ------------------------------------------------------------------------------

static __device__ __forceinline__ uint32_t hmma_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

static __device__ __forceinline__ void hmma_load(uint32_t f[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ void hmma_load_transposed(uint32_t f[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address)
                 : "memory");
}

// Starts a cp.async of 16 bytes from global to shared memory; if `there` is false, it writes zeros
// and reads nothing.
static __device__ __forceinline__ void hmma_copy(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

static __device__ __forceinline__ void hmma_copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING of the thread's commit groups are incomplete.
template <int PENDING> static __device__ __forceinline__ void hmma_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- products of tiles in shared memory ---------------------------------------------------------

// s += X Y' for HMMA_ROWS rows of X and TILES * HMMA_TILE rows of Y, over their width. `x` and `y`
// are shared memory addresses.
template <class T, int TILES>
static __device__ __forceinline__ void hmma_product(float s[TILES][4], uint32_t x, uint32_t y,
                                                    int width)
{
    const float zero[4] = {};
    int lane = threadIdx.x % 32, pitch = HMMA_PITCH(width);
    x += (lane & 15) * pitch + (lane >> 4) * 16;
    y += ((lane & 7) + ((lane >> 4) << 3)) * pitch + (lane >> 3 & 1) * 16;
#pragma unroll 2
    for (int k = 0; k < width; k += HMMA_DEPTH) {
        uint32_t a[4];
        hmma_load(a, x + k * 2);
#pragma unroll
        for (int n = 0; n < TILES; n += 2) {
            uint32_t b[4];
            float sum[2][4];
            hmma_load(b, y + n * HMMA_TILE * pitch + k * 2);
            T::mma(sum[0], a, b[0], b[1], zero);
            T::mma(sum[1], a, b[2], b[3], zero);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                s[n][i] += sum[0][i];
                s[n + 1][i] += sum[1][i];
            }
        }
    }
}

// Weights of a warp for HMMA_ROWS rows and HMMA_STEP columns, as A fragments: the rounded values,
// and the rests.
struct hmma_weights {
    uint32_t rounded[HMMA_STEP / HMMA_DEPTH][4], rest[HMMA_STEP / HMMA_DEPTH][4];
};

// Accumulators of a warp for GROUPS groups of columns of an operand: products with the `rounded`
// weights and with the `rest` weights.
template <int GROUPS> struct hmma_results {
    float rounded[GROUPS * HMMA_GROUP / HMMA_TILE][4], rest[GROUPS * HMMA_GROUP / HMMA_TILE][4];
};

// results += W Y for HMMA_STEP rows of Y and the first `groups` groups of columns from the shared
// memory address `y` on.
template <class T, int GROUPS>
static __device__ __forceinline__ void hmma_add_weighted(hmma_results<GROUPS> &results,
                                                         const hmma_weights &w, uint32_t y,
                                                         int pitch, int groups)
{
    const float zero[4] = {};
    int lane = threadIdx.x % 32;
    y += (lane & 15) * pitch + (lane >> 4) * 16;
#pragma unroll
    for (int n = 0; n < GROUPS * HMMA_GROUP / HMMA_TILE; n += 2) {
        if (n * HMMA_TILE % HMMA_GROUP == 0 && n * HMMA_TILE / HMMA_GROUP >= groups)
            break;
        float sums[4][4];
#pragma unroll
        for (int k = 0; k < HMMA_STEP / HMMA_DEPTH; k++) {
            uint32_t b[4];
            hmma_load_transposed(b, y + k * HMMA_DEPTH * pitch + n * HMMA_TILE * 2);
            T::mma(sums[0], w.rounded[k], b[0], b[1], k == 0 ? zero : sums[0]);
            T::mma(sums[1], w.rounded[k], b[2], b[3], k == 0 ? zero : sums[1]);
            T::mma(sums[2], w.rest[k], b[0], b[1], k == 0 ? zero : sums[2]);
            T::mma(sums[3], w.rest[k], b[2], b[3], k == 0 ? zero : sums[3]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            results.rounded[n][i] += sums[0][i];
            results.rounded[n + 1][i] += sums[1][i];
            results.rest[n][i] += sums[2][i];
            results.rest[n + 1][i] += sums[3][i];
        }
    }
}

#endif
