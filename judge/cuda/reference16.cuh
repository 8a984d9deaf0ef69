// SPDX-License-Identifier: Apache-2.0
// The reference and the twin of cases in 16 bit, from one pass over tensor cores.
//
// All four passes have one shape: a row of the result is the sum over the columns of a weight times
// a row of an operand,
//
//     pass   rows     columns  weight of (row, column)  operand
//     out    queries  keys     softmax, online          V
//     dQ     queries  keys     dS                       K
//     dV     keys     queries  P                        dO
//     dK     keys     queries  dS                       Q
//
// Products of 16-bit inputs are exact in fp32, so scores and dP are as good as fp32 sums. Each
// weight is split in two: what the dtype holds of it, which is all that the twin multiplies by, and
// the rest. Both are multiplied by the same operand: the sum of the two results is the reference.
//
// A block owns a tile of rows of one head and goes through the columns in steps of HMMA_STEP.
// SPLIT warps share HMMA_ROWS rows: each computes the weights of its part of a step's columns, and
// then with all of the weights its part of the result's columns.
#ifndef CPATTN_JUDGE_CUDA_REFERENCE16_CUH
#define CPATTN_JUDGE_CUDA_REFERENCE16_CUH

#include <math.h>

#include "judge/cuda/attend.cuh"
#include "judge/cuda/hmma.cuh"
#include "judge/cuda/reference16.h"

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
    int heads, head_first; // of the rows' side, those whose inputs are there
    int group;
    int row_warps;   // of a block; blocks with fewer than a tile has rows for share it
    int stages;      // of columns in shared memory
    float factor[2]; // what makes logits in base 2 of scores, in two parts
    float scale;
    const float *sinks;
    const reference_stat *stats; // of the queries
    int64_t query_rows;          // of a head of these
    reference_stat *result_stats;
    float *result_max, *result_terms;
    reference_results result;
    int64_t result_rows;
    reference_dbias dbias;
};

// ---- one block ----------------------------------------------------------------------------------

// A block's place, and what a warp of it works on.
struct place16 {
    attend_place at;
    int warp, part; // of the rows, of the columns
    int rows;       // of the block
    int g, t;       // see hmma.cuh
    int row;        // position of the warp's first row
    uint32_t x[2], y[2];
    int stage_bytes;
    reference_stat *stats; // of the rows, or of the first stage's columns
    uint4 *weights;        // where the parts exchange them: of the warps that share rows
    float *sums;           // likewise [SPLIT][HMMA_ROWS]
};

// Rows [first, first + count) of an operand of one head; those from `valid` on become zero.
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

// The warps that share rows meet.
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

// Whether each of the warp's rows sees each of some columns.
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

// Scores of columns [column, column + 8 * TILES): NaN where row and column do not see each other,
// else what times the factor is the logit in base 2: with extras their natural logit, and *slope of
// each that of the softcap.
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

// 2^(logit in base 2 - the sum of both parts of `shift`), 0 where there is no logit.
static __device__ __forceinline__ float weight_of(const attend16 &a, float score, float shift,
                                                  float shift_low)
{
    float x = fmaf(score, a.factor[0], -shift);
    x = fmaf(score, a.factor[1], x - shift_low);
    return fmaxf(exp2_fast(x), 0);
}

// Puts the weights of two neighbouring columns where they belong among those of a step.
template <class T>
static __device__ __forceinline__ void weights_set(hmma_weights &w, int tile, int m, float first,
                                                   float second, float first_rest,
                                                   float second_rest)
{
    uint32_t pair = T::pack(first, second);
    float low = first_rest - T::low(pair), high = second_rest - T::high(pair);
    w.rounded[tile / 2][tile % 2 * 2 + m] = pair;
    w.rest[tile / 2][tile % 2 * 2 + m] = T::pack(low * T::REST, high * T::REST);
}

// Each of the warps that share rows has set its part of the weights; then all have all of them.
template <int SPLIT>
static __device__ __forceinline__ void weights_share(const place16 &p, hmma_weights &w)
{
    const int steps = HMMA_STEP / HMMA_DEPTH, own = steps / SPLIT;
    if (SPLIT == 1)
        return;
    int lane = threadIdx.x % 32;
    uint4 *rounded = p.weights + lane, *rest = rounded + steps * 32;
#pragma unroll
    for (int k = 0; k < own; k++) { // its own are the first, whichever part it is
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

// What a warp has of the results. Maxima (in base 2) and sums are of rows g and g + 8; sums are
// those of a lane, in fp64 because they are long.
template <int GROUPS> struct partial16 {
    hmma_results<GROUPS> sums;
    float max[2];
    double sum[2];
    float terms[2]; // sums of squares of a lane
};

// The largest of the row in all parts.
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

// Makes `top` what sums and results are relative to.
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

// Columns of a step whose weights a warp computes, and the first of them.
template <int SPLIT> static __device__ __forceinline__ int own_column(const place16 &p, int column)
{
    return column + p.part * (HMMA_STEP / SPLIT);
}

static __device__ __forceinline__ uint32_t own_rows(const attend16 &a, const place16 &p, int i)
{
    return p.x[i] + p.warp * HMMA_ROWS * HMMA_PITCH(a.width[i]);
}

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

// dS of the rows of a warp and one column, added up over rows that share a line of the bias.
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

// The weights P or dS of HMMA_GROUP columns, the step's from tile `first` on. `stats` are those of
// the rows g and g + 8, or of the columns.
template <class T, pass PASS, bool EXTRAS>
static __device__ __forceinline__ void group_weigh(const attend16 &a, const place16 &p, int column,
                                                   const uint32_t y[2], const reference_stat *stats,
                                                   int first, float terms[2], hmma_weights &w)
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
                exact[e] = weight * (dp[n][i] - d);
                twin[e] = weight * (dp[n][i] - stat.delta_twin);
                if (EXTRAS && PASS == PASS_DQ && a.dbias.twin)
                    dbias_add(a, p, p.row + p.g + 8 * m, column + offset, exact[e], twin[e]);
                if (EXTRAS && weight > 0) {
                    exact[e] *= slope[n][i];
                    twin[e] *= slope[n][i];
                    part *= slope[n][i];
                }
                terms[m] = fmaf(part * part, fmaf(dp[n][i], dp[n][i], d * d), terms[m]);
            }
            weights_set<T>(w, first + n, m, twin[0], twin[1], exact[0], exact[1]);
        }
}

// ---- a block's work -----------------------------------------------------------------------------

// Groups of columns of the result that each part computes, the last one maybe fewer; 0 or less
// where nothing is left.
template <pass PASS, int SPLIT> static __device__ __forceinline__ int part_groups(const attend16 &a)
{
    return (a.width[pass_is_gradient(PASS) ? 0 : 1] / HMMA_GROUP + SPLIT - 1) / SPLIT;
}

template <class T, pass PASS, int SPLIT, int GROUPS, bool EXTRAS>
static __device__ __forceinline__ void step_add(const attend16 &a, const place16 &p, int column,
                                                int stage, partial16<GROUPS> &r)
{
    const int operand = pass_is_gradient(PASS) ? 0 : 1, columns = HMMA_STEP / SPLIT;
    const bool keys = pass_has_keys(PASS);
    uint32_t y[2] = {p.y[0] + stage * p.stage_bytes, p.y[1] + stage * p.stage_bytes};
    hmma_weights w;
    if (PASS == PASS_OUT) {
        softmax_weigh<T, SPLIT, GROUPS, EXTRAS>(a, p, column, y, r, w);
    } else {
#pragma unroll
        for (int at = 0; at < columns; at += HMMA_GROUP) {
            int skip = p.part * columns + at;
            const uint32_t own[2] = {y[0] + skip * HMMA_PITCH(a.width[0]),
                                     y[1] + skip * HMMA_PITCH(a.width[1])};
            const reference_stat *stats =
                keys ? p.stats + stage * HMMA_STEP + skip : p.stats + p.warp * HMMA_ROWS + p.g;
            group_weigh<T, PASS, EXTRAS>(a, p, column + skip, own, stats, at / HMMA_TILE, r.terms,
                                         w);
        }
    }
    weights_share<SPLIT>(p, w);
    int most = part_groups<PASS, SPLIT>(a), all = a.width[operand] / HMMA_GROUP;
    hmma_add_weighted<T, GROUPS>(r.sums, w, y[operand] + p.part * most * HMMA_GROUP * 2,
                                 HMMA_PITCH(a.width[operand]), min(most, all - p.part * most));
}

// Begins to fetch a step: columns of a head (of the columns' side, as it lies in memory).
template <pass PASS>
static __device__ __forceinline__ void step_fetch(const attend16 &a, const place16 &p,
                                                  int local_head, int column, int end, int stage)
{
    const bool keys = pass_has_keys(PASS);
    const reference_sequence &sequence = a.c.sequences[p.at.tile.sequence];
    int valid = min(HMMA_STEP, end - column);
    int64_t first = local_head * a.column_tokens + sequence.first[keys ? SIDE_Q : SIDE_KV] + column;
    for (int i = 0; i < 2; i++)
        rows_copy(p.y[i] + stage * p.stage_bytes, a.columns[i], a.width[i], first, HMMA_STEP,
                  valid);
    if (keys && threadIdx.x < HMMA_STEP) {
        int index = (int)threadIdx.x < valid ? (int)threadIdx.x : 0;
        int64_t head = a.head_first * a.group + local_head;
        const reference_stat *from =
            a.stats + head * a.query_rows + sequence.first[SIDE_Q] + column + index;
        hmma_copy(hmma_address(p.stats + stage * HMMA_STEP + threadIdx.x), from, true);
    }
    hmma_copy_commit();
}

// A block's columns, for keys of all query heads that share theirs.
template <class T, pass PASS, int SPLIT, int GROUPS, bool EXTRAS>
static __device__ __forceinline__ void columns_add(const attend16 &a, place16 &p,
                                                   partial16<GROUPS> &r)
{
    const bool keys = pass_has_keys(PASS);
    int begin, end, warp_begin, warp_end;
    attend_columns<keys>(a.c, p.at, (int)p.at.tile.position, p.at.tile.count, &begin, &end);
    attend_columns<keys>(a.c, p.at, p.row, HMMA_ROWS, &warp_begin, &warp_end);
    int per_head = end > begin ? (end - begin + HMMA_STEP - 1) / HMMA_STEP : 0;
    int steps = per_head * (keys ? a.group : 1);
    int head = keys ? p.at.local_head * a.group : p.at.local_head / a.group, next_head = head;
    int column = begin, next = begin;
    for (int i = 1 - a.stages; i < steps; i++) {
        int fetched = i + a.stages - 1;
        if (fetched < steps) {
            step_fetch<PASS>(a, p, next_head, next, end, fetched & (a.stages - 1));
            next += HMMA_STEP;
            if (next >= end) {
                next = begin;
                next_head++;
            }
        }
        if (i < 0)
            continue;
        if (fetched < steps && a.stages > 1)
            hmma_copy_wait<1>();
        else
            hmma_copy_wait<0>();
        __syncthreads();
        if (column < warp_end && column + HMMA_STEP > warp_begin)
            step_add<T, PASS, SPLIT, GROUPS, EXTRAS>(a, p, column, i & (a.stages - 1), r);
        column += HMMA_STEP;
        if (column >= end) {
            column = begin;
            p.at.head++;
        }
        __syncthreads();
    }
}

// Sums over the lanes and parts that share a row, of what they have for rows g and g + 8.
template <int SPLIT>
static __device__ __forceinline__ double row_sum(const place16 &p, double sum, int m)
{
    sum = quad_sum(sum);
    if (SPLIT == 1)
        return sum;
    double *shared = (double *)p.sums;
    row_barrier<SPLIT>(p);
    if (p.t == 0)
        shared[p.part * HMMA_ROWS + p.g + 8 * m] = sum;
    row_barrier<SPLIT>(p);
    sum = 0;
    for (int part = 0; part < SPLIT; part++)
        sum += shared[part * HMMA_ROWS + p.g + 8 * m];
    return sum;
}

// LSE and the factor that completes the sums; a sink is one more logit, without a value.
static __device__ __forceinline__ double softmax_end(const attend16 &a, const place16 &p,
                                                     int64_t head, double max, double sum,
                                                     reference_stat *stat)
{
    double sink = (double)a.sinks[head] * M_LOG2E, top = fmax(max, sink), lse = -INFINITY;
    double seen = 0, total = 1;
    if (top != -INFINITY) {
        seen = max == -INFINITY ? 0 : exp2(max - top);
        total = sum * seen + exp2(sink - top);
        lse = top + log2(total);
    }
    if (p.t == 0 && p.part == 0 && stat) {
        stat->lse_high = (float)lse;
        stat->lse_low = top != -INFINITY ? (float)(lse - stat->lse_high) : 0;
    }
    return seen / total;
}

template <class T, pass PASS, int SPLIT, int GROUPS>
static __device__ __forceinline__ void results_store(const attend16 &a, const place16 &p,
                                                     const partial16<GROUPS> &r)
{
    const bool gradient = pass_is_gradient(PASS);
    int width = a.width[gradient ? 0 : 1], most = part_groups<PASS, SPLIT>(a);
    int groups = min(most, width / HMMA_GROUP - p.part * most);
    int64_t head = a.head_first + p.at.local_head;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        int index = p.warp * HMMA_ROWS + p.g + 8 * m;
        bool there = index < p.at.tile.count;
        int64_t row = head * a.result_rows + p.at.tile.row + index;
        float factor = gradient ? a.scale : 1;
        if (gradient) {
            double terms = a.scale * sqrt(row_sum<SPLIT>(p, r.terms[m], m));
            if (there && a.result_terms && p.t == 0 && p.part == 0)
                a.result_terms[row] = (float)terms;
        }
        if (PASS == PASS_OUT) {
            double sum = row_sum<SPLIT>(p, r.sum[m], m);
            factor =
                (float)softmax_end(a, p, head, r.max[m], sum, there ? a.result_stats + row : NULL);
            if (there && a.result_max && p.t == 0 && p.part == 0)
                a.result_max[row] = (float)(r.max[m] * M_LN2);
        }
        if (!there)
            continue;
        int64_t at = row * width + p.part * most * HMMA_GROUP + 2 * p.t;
#pragma unroll
        for (int n = 0; n < GROUPS * HMMA_GROUP / HMMA_TILE; n++) {
            if (n * HMMA_TILE / HMMA_GROUP >= groups)
                break;
            float low = r.sums.rounded[n][2 * m], high = r.sums.rounded[n][2 * m + 1];
            float2 exact;
            exact.x = (low + r.sums.rest[n][2 * m] / T::REST) * factor;
            exact.y = (high + r.sums.rest[n][2 * m + 1] / T::REST) * factor;
            if (a.result.exact)
                *(float2 *)(a.result.exact + at + n * HMMA_TILE) = exact;
            *(uint32_t *)((uint16_t *)a.result.twin + at + n * HMMA_TILE) =
                T::pack(low * factor, high * factor);
        }
    }
}

// ---- shared memory ------------------------------------------------------------------------------

#define SHARED_STATS   (2 * HMMA_STEP * sizeof(reference_stat))
#define SHARED_SUMS    (HMMA_ROWS * sizeof(double))                        // of a warp
#define SHARED_WEIGHTS (2 * (HMMA_STEP / HMMA_DEPTH) * 32 * sizeof(uint4)) // of HMMA_ROWS rows

static int64_t shared_bytes(const attend16 &a, bool gradient, int split)
{
    int64_t pitch[2] = {HMMA_PITCH(a.width[0]), HMMA_PITCH(a.width[1])};
    int64_t rows = a.row_warps * HMMA_ROWS * (pitch[0] + (gradient ? pitch[1] : 0));
    int64_t shared = split > 1 ? a.row_warps * (split * SHARED_SUMS + SHARED_WEIGHTS) : 0;
    return rows + a.stages * HMMA_STEP * (pitch[0] + pitch[1]) + SHARED_STATS + shared;
}

template <pass PASS, int SPLIT>
static __device__ __forceinline__ void memory_share(const attend16 &a, char *memory, place16 &p)
{
    int pitch[2] = {HMMA_PITCH(a.width[0]), HMMA_PITCH(a.width[1])};
    p.stats = (reference_stat *)memory;
    memory += SHARED_STATS;
    if (SPLIT > 1) {
        p.sums = (float *)(memory + p.warp * SPLIT * SHARED_SUMS);
        memory += a.row_warps * SPLIT * SHARED_SUMS;
        p.weights = (uint4 *)(memory + p.warp * SHARED_WEIGHTS);
        memory += a.row_warps * SHARED_WEIGHTS;
    }
    p.x[0] = hmma_address(memory);
    p.x[1] = p.x[0] + p.rows * pitch[0];
    p.y[0] = p.x[1] + (pass_is_gradient(PASS) ? p.rows * pitch[1] : 0);
    p.y[1] = p.y[0] + HMMA_STEP * pitch[0];
    p.stage_bytes = HMMA_STEP * (pitch[0] + pitch[1]);
}

// ---- kernels ------------------------------------------------------------------------------------

// What the block is to do, or nothing (then false).
template <pass PASS>
static __device__ __forceinline__ bool place_find(const attend16 &a, place16 &p)
{
    p.rows = a.row_warps * HMMA_ROWS;
    int number = blockIdx.x / a.heads, parts = REFERENCE_TILE_ROWS / p.rows;
    p.at.tile = a.tiles[number / parts];
    int skipped = number % parts * p.rows;
    if (skipped >= p.at.tile.count)
        return false;
    p.at.tile.position += skipped;
    p.at.tile.row += skipped;
    p.at.tile.bias_row += skipped * a.dbias.row_step;
    p.at.tile.count = min(p.at.tile.count - skipped, p.rows);
    p.at.local_head = blockIdx.x % a.heads;
    p.at.head = (a.head_first + p.at.local_head) * (pass_has_keys(PASS) ? a.group : 1);
    attend_sequence(a.c, p.at);
    p.warp = threadIdx.x / 32 % a.row_warps;
    p.part = threadIdx.x / 32 / a.row_warps;
    p.g = threadIdx.x % 32 / 4;
    p.t = threadIdx.x % 4;
    p.row = (int)p.at.tile.position + p.warp * HMMA_ROWS;
    return true;
}

// A block for each tile and head: query heads, or key heads.
template <class T, pass PASS, int SPLIT, int GROUPS, int BLOCKS, bool EXTRAS>
__global__ void __launch_bounds__(SPLIT *ROW_WARPS_MAX * 32, BLOCKS)
    attend16_kernel(const attend16 a)
{
    extern __shared__ __align__(16) char memory[];
    const bool gradient = pass_is_gradient(PASS);
    place16 p;
    if (!place_find<PASS>(a, p))
        return;
    memory_share<PASS, SPLIT>(a, memory, p);
    int64_t token =
        a.c.sequences[p.at.tile.sequence].first[pass_has_keys(PASS) ? SIDE_KV : SIDE_Q] +
        p.at.tile.position;
    for (int i = 0; i < (gradient ? 2 : 1); i++)
        rows_copy(p.x[i], a.rows[i], a.width[i], p.at.local_head * a.row_tokens + token, p.rows,
                  p.at.tile.count);
    hmma_copy_commit();
    if (PASS == PASS_DQ && threadIdx.x < p.rows) {
        int index = min((int)threadIdx.x, p.at.tile.count - 1);
        p.stats[threadIdx.x] = a.stats[p.at.head * a.query_rows + p.at.tile.row + index];
    }
    partial16<GROUPS> r = {};
    r.max[0] = r.max[1] = -INFINITY;
    columns_add<T, PASS, SPLIT, GROUPS, EXTRAS>(a, p, r);
    results_store<T, PASS, SPLIT, GROUPS>(a, p, r);
}

// ---- launches -----------------------------------------------------------------------------------

// Of a multiprocessor's shared memory, what each of its blocks takes for itself.
#define SHARED_RESERVED 1024

// As many warps and stages as there is room for.
static void shape_choose(attend16 &a, bool gradient, int split, int64_t room, int64_t most)
{
    a.row_warps = ROW_WARPS_MAX;
    a.stages = 2;
    if (shared_bytes(a, gradient, split) <= room)
        return;
    a.stages = 1;
    while (a.row_warps > 1 && shared_bytes(a, gradient, split) > most)
        a.row_warps /= 2;
}

template <class T, pass PASS, int SPLIT, int GROUPS, int BLOCKS, bool EXTRAS>
static void pass_launch(const struct reference_cuda *r, const struct reference_rows *rows,
                        attend16 &a)
{
    const bool gradient = pass_is_gradient(PASS);
    int64_t most = r->queue->shared_bytes_max;
    shape_choose(a, gradient, SPLIT, BLOCKS == 1 ? most : most / BLOCKS - SHARED_RESERVED, most);
    int64_t blocks = rows->tile_count * a.heads * (ROW_WARPS_MAX / a.row_warps);
    size_t bytes = (size_t)shared_bytes(a, gradient, SPLIT);
    auto kernel = attend16_kernel<T, PASS, SPLIT, GROUPS, BLOCKS, EXTRAS>;
    if (blocks == 0 ||
        !queue_note(
            r->queue,
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
            "the shared memory of the reference"))
        return;
    kernel<<<(unsigned)blocks, SPLIT * a.row_warps * 32, bytes, r->queue->stream>>>(a);
    queue_launched(r->queue, "the reference");
}

#ifndef WIDE_VARIANT
#define WIDE_VARIANT 1, 4, 2
#endif

// Wide heads, and what costs registers, are shared by two warps.
template <class T, pass PASS>
static void pass_run(const struct reference_cuda *r, const struct reference_rows *rows, attend16 &a)
{
    if (a.c.bias.present || a.c.softcap != 0)
        pass_launch<T, PASS, 2, 4, 1, true>(r, rows, a);
    else if (a.width[0] > 128 || a.width[1] > 128)
        pass_launch<T, PASS, 2, 4, 1, false>(r, rows, a);
    else if (a.width[0] > 64 || a.width[1] > 64)
        pass_launch<T, PASS, WIDE_VARIANT, false>(r, rows, a);
    else
        pass_launch<T, PASS, 1, 2, 3, false>(r, rows, a);
}

template <class T>
static void passes_run(const struct reference_cuda *r, const struct reference_rows *rows,
                       attend16 &a, pass which)
{
    switch (which) {
    case PASS_OUT:
        return pass_run<T, PASS_OUT>(r, rows, a);
    case PASS_DQ:
        return pass_run<T, PASS_DQ>(r, rows, a);
    case PASS_DV:
        return pass_run<T, PASS_DV>(r, rows, a);
    case PASS_DK:
        return pass_run<T, PASS_DK>(r, rows, a);
    }
}

void reference16_run_bf16(const struct reference_cuda *r, const struct reference_rows *rows,
                          attend16 &a, pass which);
void reference16_run_fp16(const struct reference_cuda *r, const struct reference_rows *rows,
                          attend16 &a, pass which);

#endif
