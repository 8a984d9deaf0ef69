// SPDX-License-Identifier: Apache-2.0
// Computes the weights of reference16.cuh: each warp for its rows and some columns.
#ifndef CPATTN_JUDGE_CUDA_REFERENCE16_WEIGHTS_CUH
#define CPATTN_JUDGE_CUDA_REFERENCE16_WEIGHTS_CUH

#include <math.h>

#include "judge/cuda/attend.cuh"
#include "judge/cuda/hmma.cuh"
#include "judge/cuda/reference_cuda.h"

#define ROW_WARPS_MAX (REFERENCE_TILE_ROWS / HMMA_ROWS)

enum pass { PASS_OUT, PASS_DQ, PASS_DV, PASS_DK };

static __host__ __device__ constexpr bool pass_is_gradient(pass p)
{
    return p == PASS_DQ || p == PASS_DK;
}

static __host__ __device__ constexpr bool pass_has_keys(pass p)
{
    return p == PASS_DV || p == PASS_DK;
}

struct attend16 {
    attend_case c;
    const uint16_t *rows[2], *columns[2]; // Q and dO, or K and V
    int64_t row_tokens, column_tokens;
    int width[2]; // padded dims of Q and K, of V and dO
    const reference_tile *tiles;
    int heads, head_first; // heads of the rows' side whose inputs are in memory
    int group;             // query heads per key head
    int row_warps;   // warps of a block along the rows; several blocks share a tile with more rows
    int stages;      // pipeline stages of columns in shared memory, 1 or 2
    float factor[2]; // from scores to logits in base 2: the sum of two numbers
    float scale;
    float products; // rules_product_squares()
    const float *sinks;
    const reference_stat *stats; // of the queries
    int64_t query_rows;          // statistics per head
    reference_stat *result_stats;
    float *result_max, *result_terms;
    reference_results result;
    int64_t result_rows; // per head
    reference_dbias dbias;
};

// ---- one block ----------------------------------------------------------------------------------

// The tile and head of a block, and a warp's part of them.
struct place16 {
    attend_place at;
    int warp, part;        // index of the warp along the rows, along the columns (0..SPLIT-1)
    int rows;              // of the block
    int g, t;              // see hmma.cuh
    int row;               // position of the warp's first row
    uint32_t x[2], y[2];   // shared memory: operands of the block's rows, of stage 0
    int stage_bytes;       // from one stage to the next
    reference_stat *stats; // of the block's rows (dQ), or of the columns of stage 0 (dV, dK)
    uint4 *weights;        // exchanged by the warps that share rows
    float *sums;           // also exchanged: maxima, or sums in fp64, [SPLIT][HMMA_ROWS]
};

// Starts copies of rows [first, first + count) of an operand of one head to shared memory. Rows
// from `valid` on become zero. Called by the whole block.
static __device__ __forceinline__ void rows_copy(uint32_t to, const uint16_t *from, int width,
                                                 int64_t first, int count, int valid)
{
    int parts = width / 8;
    for (int i = threadIdx.x; i < count * parts; i += blockDim.x) {
        int row = i / parts, part = i % parts;
        int64_t at = first + (row < valid ? row : 0);
        hmma_copy(to + row * HMMA_PITCH(width) + part * 16, from + at * width + part * 8,
                  row < valid);
    }
}

// Named barrier of the SPLIT warps that share rows.
template <int SPLIT> static __device__ __forceinline__ void row_barrier(const place16 &p)
{
    if (SPLIT > 1)
        asm volatile("bar.sync %0, %1;" ::"r"(1 + p.warp), "r"(SPLIT * 32) : "memory");
}

static __device__ __forceinline__ float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

template <class X> static __device__ __forceinline__ X quad_sum(X x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

static __device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// ---- logits -------------------------------------------------------------------------------------

// True if each of the warp's rows sees all columns [column, column + count).
template <bool KEYS>
static __device__ __forceinline__ bool sees_all(const attend16 &a, const place16 &p, int column,
                                                int count)
{
    int row = p.row, last_row = p.row + HMMA_ROWS - 1, last = column + count - 1;
    if (last_row >= p.at.row_end || last >= (KEYS ? p.at.queries : p.at.keys))
        return false;
    int least = KEYS ? row - last : column - last_row, most = KEYS ? last_row - column : last - row;
    return least - p.at.shift >= -a.c.left && most - p.at.shift <= a.c.right;
}

// Finishes the scores of columns [column, column + 8 * TILES): those of hidden pairs become NaN.
// With EXTRAS each other score becomes the logit, and `slope` the derivative of the softcap. In
// both cases score * a.factor is the logit in base 2.
template <bool KEYS, bool EXTRAS, int TILES>
static __device__ __forceinline__ void scores_finish(const attend16 &a, const place16 &p,
                                                     int column, float s[TILES][4],
                                                     float slope[TILES][4])
{
    if (!EXTRAS && sees_all<KEYS>(a, p, column, TILES * HMMA_TILE))
        return;
#pragma unroll
    for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = p.row + p.g + i / 2 * 8, at = column + n * HMMA_TILE + 2 * p.t + i % 2;
            int query = KEYS ? at : row, key = KEYS ? row : at;
            if (row >= p.at.row_end || !attend_sees(a.c, p.at, query, key))
                s[n][i] = NAN;
            else if (EXTRAS)
                s[n][i] = attend_logit(a.c, p.at, s[n][i] * a.scale, query, key, &slope[n][i]);
        }
}

// 2^(score * factor - shift - shift_low); 0 if the score is NaN.
static __device__ __forceinline__ float weight_of(const attend16 &a, float score, float shift,
                                                  float shift_low)
{
    float x = fmaf(score, a.factor[0], -shift);
    x = fmaf(score, a.factor[1], x - shift_low);
    return fmaxf(exp2_fast(x), 0);
}

// Stores the weights of two adjacent columns, `low` and `high`, as part of the A fragments of a
// step: the twin's weights rounded, and the rest up to the exact weights, which are the
// reference's.
template <class T>
static __device__ __forceinline__ void weights_set(hmma_weights &w, int tile, int m, float twin_low,
                                                   float twin_high, float exact_low,
                                                   float exact_high)
{
    uint32_t pair = T::pack(twin_low, twin_high);
    float rest_low = exact_low - T::low(pair), rest_high = exact_high - T::high(pair);
    w.rounded[tile / 2][tile % 2 * 2 + m] = pair;
    w.rest[tile / 2][tile % 2 * 2 + m] = T::pack(rest_low * T::REST, rest_high * T::REST);
}

// The warps that share rows exchange their parts of the weights through shared memory, so that each
// has the weights of the whole step.
template <int SPLIT>
static __device__ __forceinline__ void weights_share(const place16 &p, hmma_weights &w)
{
    const int steps = HMMA_STEP / HMMA_DEPTH, own = steps / SPLIT;
    if (SPLIT == 1)
        return;
    int lane = threadIdx.x % 32;
    uint4 *rounded = p.weights + lane, *rest = rounded + steps * 32;
#pragma unroll
    for (int k = 0; k < own; k++) { // a warp's own part is in its first fragments
        uint32_t *x = w.rounded[k], *y = w.rest[k];
        rounded[(p.part * own + k) * 32] = make_uint4(x[0], x[1], x[2], x[3]);
        rest[(p.part * own + k) * 32] = make_uint4(y[0], y[1], y[2], y[3]);
    }
    row_barrier<SPLIT>(p);
#pragma unroll
    for (int k = 0; k < steps; k++) {
        uint4 x = rounded[k * 32], y = rest[k * 32];
        w.rounded[k][0] = x.x, w.rounded[k][1] = x.y, w.rounded[k][2] = x.z, w.rounded[k][3] = x.w;
        w.rest[k][0] = y.x, w.rest[k][1] = y.y, w.rest[k][2] = y.z, w.rest[k][3] = y.w;
    }
}

// ---- weights ------------------------------------------------------------------------------------

// Partial results of a warp. Maxima (in base 2) and sums are those of rows g and g + 8. Maxima are
// common to all lanes and warps of a row. `sum` has only the columns of the lane, in fp64 because
// it has many terms.
template <int GROUPS> struct partial16 {
    hmma_results<GROUPS> sums;
    float max[2];
    double sum[2];
    float terms[2], bias_terms[2]; // sums of squares of a lane
};

// Replaces `top` by the maxima of rows g and g + 8 over all warps that share these rows.
template <int SPLIT>
static __device__ __forceinline__ void maxima_share(const place16 &p, float top[2])
{
    if (SPLIT == 1)
        return;
    if (p.t == 0) {
        p.sums[p.part * HMMA_ROWS + p.g] = top[0];
        p.sums[p.part * HMMA_ROWS + p.g + 8] = top[1];
    }
    row_barrier<SPLIT>(p);
#pragma unroll
    for (int part = 0; part < SPLIT; part++) {
        top[0] = fmaxf(top[0], p.sums[part * HMMA_ROWS + p.g]);
        top[1] = fmaxf(top[1], p.sums[part * HMMA_ROWS + p.g + 8]);
    }
}

// Raises the maxima to `top` and rescales sums and accumulators accordingly.
template <int GROUPS>
static __device__ __forceinline__ void maxima_raise(partial16<GROUPS> &r, const float top[2])
{
    float fade[2];
    bool grown = false;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        fade[m] = r.max[m] == -INFINITY ? 0 : exp2f(r.max[m] - top[m]);
        grown |= top[m] > r.max[m];
    }
    if (!__any_sync(~0u, grown))
        return;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        fade[m] = top[m] > r.max[m] ? fade[m] : 1;
        r.max[m] = top[m];
        r.sum[m] *= fade[m];
    }
#pragma unroll
    for (int n = 0; n < GROUPS * HMMA_GROUP / HMMA_TILE; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            r.sums.rounded[n][i] *= fade[i / 2];
            r.sums.rest[n][i] *= fade[i / 2];
        }
}

// The first of the HMMA_STEP / SPLIT columns of a step whose weights the warp computes.
template <int SPLIT> static __device__ __forceinline__ int own_column(const place16 &p, int column)
{
    return column + p.part * (HMMA_STEP / SPLIT);
}

// Shared memory address of operand i of the warp's rows.
static __device__ __forceinline__ uint32_t own_rows(const attend16 &a, const place16 &p, int i)
{
    return p.x[i] + p.warp * HMMA_ROWS * HMMA_PITCH(a.width[i]);
}

// Online softmax of one step: updates maxima and sums, and computes the warp's part of the weights.
template <class T, int SPLIT, int GROUPS, bool EXTRAS>
static __device__ __forceinline__ void softmax_weigh(const attend16 &a, const place16 &p,
                                                     int column, const uint32_t y[2],
                                                     partial16<GROUPS> &r, hmma_weights &w)
{
    const int columns = HMMA_STEP / SPLIT, tiles = columns / HMMA_TILE;
    float s[tiles][4] = {}, slope[tiles][4], top[2] = {r.max[0], r.max[1]};
    hmma_product<T, tiles>(s, own_rows(a, p, 0), y[0] + p.part * columns * HMMA_PITCH(a.width[0]),
                           a.width[0]);
    scores_finish<false, EXTRAS, tiles>(a, p, own_column<SPLIT>(p, column), s, slope);
#pragma unroll
    for (int n = 0; n < tiles; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            top[i / 2] = fmaxf(top[i / 2], s[n][i] * a.factor[0]);
    top[0] = quad_max(top[0]);
    top[1] = quad_max(top[1]);
    maxima_share<SPLIT>(p, top);
    maxima_raise<GROUPS>(r, top);
#pragma unroll
    for (int m = 0; m < 2; m++) {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < tiles; n++) {
            float first = weight_of(a, s[n][2 * m], top[m], 0);
            float second = weight_of(a, s[n][2 * m + 1], top[m], 0);
            sum += first + second;
            weights_set<T>(w, n, m, first, second, first, second);
        }
        r.sum[m] += sum;
    }
}

// Adds dS of a pair to the gradient of the bias, with atomics. If rows share a line of the bias, dS
// is first summed over the lanes that have the same column. Called by the whole warp.
static __device__ __forceinline__ void dbias_add(const attend16 &a, const place16 &p, int row,
                                                 int key, float ds, float ds_twin)
{
    int64_t line = p.at.tile.bias_row + (row - (int)p.at.tile.position) * a.dbias.row_step;
    double sum = ds;
    if (a.dbias.row_step == 0)
        for (int lanes = 4; lanes < 32; lanes *= 2) {
            sum += __shfl_xor_sync(~0u, sum, lanes);
            ds_twin += __shfl_xor_sync(~0u, ds_twin, lanes);
        }
    if (sum == 0 || (a.dbias.row_step == 0 && p.g != 0))
        return;
    int64_t at = p.at.head * a.dbias.head_stride + line * a.c.seqlen_kv + key;
    if (a.dbias.data)
        atomicAdd(a.dbias.data + at, sum);
    atomicAdd(a.dbias.twin + at, ds_twin);
}

// Computes the weights P or dS of HMMA_GROUP columns, and stores them from tile `first` of the step
// on. `stats` are those of rows g and g + 8 (elements 0 and 8), or, with rows of keys, of the
// columns.
template <class T, pass PASS, bool EXTRAS, int GROUPS>
static __device__ __forceinline__ void group_weigh(const attend16 &a, const place16 &p, int column,
                                                   const uint32_t y[2], const reference_stat *stats,
                                                   int first, partial16<GROUPS> &r, hmma_weights &w)
{
    const int tiles = HMMA_GROUP / HMMA_TILE;
    const bool keys = pass_has_keys(PASS);
    float s[tiles][4] = {}, dp[tiles][4] = {}, slope[tiles][4];
    hmma_product<T, tiles>(s, own_rows(a, p, 0), y[0], a.width[0]);
    if (pass_is_gradient(PASS))
        hmma_product<T, tiles>(dp, own_rows(a, p, 1), y[1], a.width[1]);
    scores_finish<keys, EXTRAS, tiles>(a, p, column, s, slope);
#pragma unroll
    for (int n = 0; n < tiles; n++)
#pragma unroll
        for (int m = 0; m < 2; m++) {
            float exact[2], twin[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int i = 2 * m + e, offset = n * HMMA_TILE + 2 * p.t + e;
                reference_stat stat = stats[keys ? offset : 8 * m];
                float weight = weight_of(a, s[n][i], stat.lse_high, stat.lse_low);
                exact[e] = twin[e] = weight;
                if (!pass_is_gradient(PASS))
                    continue;
                float d = stat.delta, part = weight;
                float squares = fmaf(dp[n][i], dp[n][i], fmaf(d, d, a.products));
                exact[e] = weight * (dp[n][i] - d);
                twin[e] = weight * (dp[n][i] - stat.delta_twin);
                if (EXTRAS && PASS == PASS_DQ && a.dbias.twin) {
                    dbias_add(a, p, p.row + p.g + 8 * m, column + offset, exact[e], twin[e]);
                    r.bias_terms[m] = fmaf(part * squares, part, r.bias_terms[m]);
                }
                if (EXTRAS && weight > 0) {
                    float moved = attend_slope_twin(a.c, slope[n][i], e);
                    exact[e] *= slope[n][i];
                    twin[e] *= moved;
                    part *= moved;
                }
                r.terms[m] = fmaf(part * squares, part, r.terms[m]); // part * part may underflow
            }
            weights_set<T>(w, first + n, m, twin[0], twin[1], exact[0], exact[1]);
        }
}

#endif
