// SPDX-License-Identifier: Apache-2.0
// Matrix products of a warp in fp64 on the tensor cores (sm_80 and later). The operands are fp32 in
// shared memory.
//
// A warp multiplies A (16 x 16) by B (16 x 8). With g = lane / 4 and t = lane % 4 a lane holds
//   A: a[2 * i + m] = A(g + 8 * m, k(i))    B: b[i] = B(k(i), g)
//   C: c[2 * m + e] = C(g + 8 * m, 2 * t + e)
// for four values k(i) of its own, i = 0..3. The order of k is free as long as A and B use the same
// order, because the product sums over k.
#ifndef CPATTN_JUDGE_CUDA_DMMA_CUH
#define CPATTN_JUDGE_CUDA_DMMA_CUH

#include <stdint.h>

#define DMMA_ROWS    16
#define DMMA_COLUMNS 8
#define DMMA_DEPTH   16

// c += A B.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

static __device__ __forceinline__ void dmma(double c[4], const double a[8], const double b[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
          "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}

#else

static __device__ __forceinline__ void dmma(double c[4], const double a[8], const double b[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int m = 0; m < 2; m++)
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(c[2 * m]), "+d"(c[2 * m + 1])
                : "d"(a[2 * i + m]), "d"(b[i]));
}

#endif

// ---- products of tiles in shared memory ---------------------------------------------------------

#define DMMA_STEP   32 // rows of Y per step
#define DMMA_TILES  (DMMA_STEP / DMMA_COLUMNS)
#define DMMA_GROUP  32 // columns of Y per group: a lane reads 4 of them at once
#define DMMA_GROUPS 4
#define DMMA_SLICE  (DMMA_GROUPS * DMMA_GROUP) // columns of the results of a warp

// Row pitch in shared memory, in floats: a multiple of 32 plus 4, so that the reads below have no
// bank conflicts.
#define DMMA_PITCH(width) ((width) + 4)

// s += X Y' for DMMA_ROWS rows of X and DMMA_STEP rows of Y, over their width, a multiple of 32.
static __device__ __forceinline__ void dmma_product(double s[DMMA_TILES][4], const float *x,
                                                    const float *y, int width)
{
    int pitch = DMMA_PITCH(width), g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float *rows = x + g * pitch + 8 * t, *columns = y + g * pitch + 8 * t;
#pragma unroll 1
    for (int k = 0; k < width; k += 2 * DMMA_DEPTH)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float4 low = *(const float4 *)(rows + k + 4 * half);
            float4 high = *(const float4 *)(rows + 8 * pitch + k + 4 * half);
            double a[8] = {low.x, high.x, low.y, high.y, low.z, high.z, low.w, high.w};
#pragma unroll
            for (int n = 0; n < DMMA_TILES; n++) {
                float4 v = *(const float4 *)(columns + 8 * n * pitch + k + 4 * half);
                double b[4] = {v.x, v.y, v.z, v.w};
                dmma(s[n], a, b);
            }
        }
}

// Accumulators of a warp for DMMA_ROWS rows and DMMA_SLICE columns: sums[group][j][2 * m + e] is
// row g + 8 * m, column 32 * group + 8 * t + 4 * e + j.
typedef double dmma_results[DMMA_GROUPS][4][4];

// sums += W Y for DMMA_STEP rows of Y and the first `groups` groups of columns of Y. The weights w
// have the fragment layout of the scores of dmma_product().
static __device__ __forceinline__ void dmma_add_weighted(dmma_results sums,
                                                         const double w[DMMA_TILES][4],
                                                         const float *y, int pitch, int groups)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float *rows = y + 2 * t * pitch + 4 * g;
#pragma unroll
    for (int u = 0; u < DMMA_TILES; u += 2) {
        double a[8];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int m = 0; m < 2; m++)
                a[2 * i + m] = w[u + i / 2][2 * m + i % 2];
#pragma unroll
        for (int group = 0; group < DMMA_GROUPS; group++) {
            if (group >= groups)
                break;
            float4 v[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = *(const float4 *)(rows + (8 * (u + i / 2) + i % 2) * pitch +
                                         group * DMMA_GROUP);
            double b0[4] = {v[0].x, v[1].x, v[2].x, v[3].x};
            dmma(sums[group][0], a, b0);
            double b1[4] = {v[0].y, v[1].y, v[2].y, v[3].y};
            dmma(sums[group][1], a, b1);
            double b2[4] = {v[0].z, v[1].z, v[2].z, v[3].z};
            dmma(sums[group][2], a, b2);
            double b3[4] = {v[0].w, v[1].w, v[2].w, v[3].w};
            dmma(sums[group][3], a, b3);
        }
    }
}

#endif
