// SPDX-License-Identifier: Apache-2.0
// The passes of reference16.cuh in plain fp32. A block has WARPS * ROWS rows of a tile and loops
// over the columns in steps of STEP. In each step a lane first computes the weights of one column
// for the rows of its warp, and then adds to its columns of the result.
#include "judge/cuda/reference32.h"

#include <math.h>

#include "judge/cuda/attend.cuh"

#define WARP      32
#define WARPS     4
#define ROWS      4 // per warp
#define STEP      WARP
#define PARTS_MAX (HEAD_DIM_MAX / WARP) // columns of the result per lane

enum pass { PASS_OUT, PASS_DQ, PASS_DV, PASS_DK };

struct plain {
    attend_case c;
    const float *rows[2], *columns[2]; // Q and dO, or K and V
    int64_t row_tokens, column_tokens;
    int width[2]; // padded dims of Q and K, of V and dO
    const reference_tile *tiles;
    int heads, head_first, group; // heads of the rows' side in memory; query heads per key head
    float scale;
    const float *sinks;
    reference_stat *stats; // of the queries
    int64_t query_rows, result_rows;
    float *result;
    reference_dbias dbias;
};

struct plain_place {
    attend_place at;
    int warp, lane, row; // row: position of the warp's first row
    const float *x[2];   // the warp's rows in shared memory
    float *y[2];         // the step's columns in shared memory
    float *weights;      // [ROWS][STEP] of the warp
};

// Row pitch in shared memory, in floats. It is odd, so that lanes that read 32 rows have no bank
// conflicts.
#define PITCH(width) ((width) + 1)

static __device__ __forceinline__ float lanes_sum(float x)
{
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

static __device__ __forceinline__ float lanes_max(float x)
{
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
    return x;
}

// Copies rows [first, first + count) of one head to shared memory. Rows from `valid` on become
// zero. Called by the whole block.
static __device__ __forceinline__ void plain_load(float *to, const float *from, int width,
                                                  int64_t first, int count, int valid)
{
    for (int i = threadIdx.x; i < count * width; i += WARPS * WARP) {
        int row = i / width, k = i % width;
        to[row * PITCH(width) + k] = row < valid ? from[(first + row) * width + k] : 0;
    }
}

static __device__ __forceinline__ void plain_products(float s[ROWS], const float *x, const float *y,
                                                      int width)
{
    for (int r = 0; r < ROWS; r++)
        s[r] = 0;
    for (int k = 0; k < width; k++)
        for (int r = 0; r < ROWS; r++)
            s[r] = fmaf(x[r * PITCH(width) + k], y[k], s[r]);
}

// Partial results of a lane for the rows of its warp.
struct plain_partial {
    float sums[ROWS][PARTS_MAX];
    float max[ROWS], sum[ROWS]; // in base 2, equal in all lanes
};

// exp(logit) * 2^-shift, as kernels usually compute it: a fused multiply-add, then ex2 in the
// special function unit.
static __device__ __forceinline__ float weight_of(float logit, float shift)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(logit, (float)M_LOG2E, -shift)));
    return y;
}

static __device__ __forceinline__ void plain_dbias(const plain &a, const plain_place &p, int row,
                                                   int key, float ds)
{
    int64_t line = p.at.tile.bias_row + (row - (int)p.at.tile.position) * a.dbias.row_step;
    atomicAdd(a.dbias.twin + p.at.head * a.dbias.head_stride + line * a.c.seqlen_kv + key, ds);
}

// Computes the weights of the lane's column of the step for the warp's rows (out: with the online
// softmax), and stores them in p.weights. Called by the whole warp.
template <pass PASS>
static __device__ __forceinline__ void plain_weigh(const plain &a, const plain_place &p, int column,
                                                   plain_partial &r)
{
    const bool keys = PASS == PASS_DV || PASS == PASS_DK;
    float s[ROWS], dp[ROWS];
    plain_products(s, p.x[0], p.y[0] + p.lane * PITCH(a.width[0]), a.width[0]);
    if (PASS == PASS_DQ || PASS == PASS_DK)
        plain_products(dp, p.x[1], p.y[1] + p.lane * PITCH(a.width[1]), a.width[1]);
    for (int i = 0; i < ROWS; i++) {
        int row = p.row + i, at = column + p.lane, query = keys ? at : row, key = keys ? row : at;
        bool seen = row < p.at.row_end && attend_sees(a.c, p.at, query, key);
        float slope = 1, weight = 0, logit = -INFINITY;
        if (seen)
            logit = attend_logit(a.c, p.at, s[i] * a.scale, query, key, &slope);
        if (PASS == PASS_OUT) {
            float top = fmaxf(r.max[i], lanes_max(logit) * (float)M_LOG2E);
            float fade = r.max[i] == -INFINITY ? 0 : exp2f(r.max[i] - top);
            weight = seen ? weight_of(logit, top) : 0;
            r.max[i] = top;
            r.sum[i] = r.sum[i] * fade + lanes_sum(weight);
            for (int part = 0; part < PARTS_MAX; part++)
                r.sums[i][part] *= fade;
        } else if (seen) {
            int64_t token = keys ? a.c.sequences[p.at.tile.sequence].first[SIDE_Q] + query
                                 : p.at.tile.row + row - (int)p.at.tile.position;
            const reference_stat &stat = a.stats[p.at.head * a.query_rows + token];
            weight = weight_of(logit, stat.lse_high);
            if (PASS != PASS_DV)
                weight *= dp[i] - stat.delta_twin;
            if (PASS == PASS_DQ && a.dbias.twin)
                plain_dbias(a, p, row, key, weight);
            if (PASS != PASS_DV)
                weight *= attend_slope_twin(a.c, slope, p.lane);
        }
        p.weights[i * STEP + p.lane] = weight;
    }
}

// Adds the weighted columns of the step to the lane's columns of the result. Called by the whole
// warp.
template <pass PASS>
static __device__ __forceinline__ void plain_add(const plain &a, const plain_place &p,
                                                 plain_partial &r)
{
    const int operand = PASS == PASS_DQ || PASS == PASS_DK ? 0 : 1;
    int width = a.width[operand];
    __syncwarp();
    for (int j = 0; j < STEP; j++)
#pragma unroll
        for (int part = 0; part < PARTS_MAX; part++) {
            if (part * WARP >= width)
                break;
            float y = p.y[operand][j * PITCH(width) + part * WARP + p.lane];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                r.sums[i][part] = fmaf(p.weights[i * STEP + j], y, r.sums[i][part]);
        }
    __syncwarp();
}

// Adds all columns of `head`, a head of the columns' side among those in memory. Called by the
// whole block.
template <pass PASS>
static __device__ __forceinline__ void plain_columns(const plain &a, const plain_place &p, int head,
                                                     plain_partial &r)
{
    const bool keys = PASS == PASS_DV || PASS == PASS_DK;
    int begin, end;
    attend_columns<keys>(a.c, p.at, (int)p.at.tile.position, p.at.tile.count, &begin, &end);
    int64_t base =
        head * a.column_tokens + a.c.sequences[p.at.tile.sequence].first[keys ? SIDE_Q : SIDE_KV];
    for (int column = begin; column < end; column += STEP) {
        __syncthreads();
        for (int i = 0; i < 2; i++)
            plain_load(p.y[i], a.columns[i], a.width[i], base + column, STEP, end - column);
        __syncthreads();
        plain_weigh<PASS>(a, p, column, r);
        plain_add<PASS>(a, p, r);
    }
}

// Stores the LSE of a row and returns the factor that normalizes its sums.
static __device__ __forceinline__ float plain_end(const plain &a, const plain_place &p, float max,
                                                  float sum, reference_stat *stat)
{
    float sink = a.sinks[p.at.head] * (float)M_LOG2E, top = fmaxf(max, sink), seen = 0, total = 1;
    float lse = -INFINITY;
    if (top != -INFINITY) {
        seen = max == -INFINITY ? 0 : exp2f(max - top);
        total = sum * seen + exp2f(sink - top);
        lse = top + log2f(total);
    }
    if (p.lane == 0) {
        stat->lse_high = lse;
        stat->lse_low = 0;
    }
    return seen / total;
}

// Grid: tiles x blocks per tile x heads of the rows' side.
template <pass PASS> __global__ void __launch_bounds__(WARPS *WARP) plain_kernel(const plain a)
{
    extern __shared__ float memory[];
    const bool keys = PASS == PASS_DV || PASS == PASS_DK;
    const int result = PASS == PASS_DQ || PASS == PASS_DK ? 0 : 1, rows = WARPS * ROWS;
    const int parts = REFERENCE_TILE_ROWS / rows;
    plain_place p;
    int number = blockIdx.x / a.heads, skipped = number % parts * rows;
    p.at.tile = a.tiles[number / parts];
    if (skipped >= p.at.tile.count)
        return;
    p.at.tile.position += skipped;
    p.at.tile.row += skipped;
    p.at.tile.bias_row += skipped * a.dbias.row_step;
    p.at.tile.count = min(p.at.tile.count - skipped, rows);
    p.at.local_head = blockIdx.x % a.heads;
    p.at.head = (a.head_first + p.at.local_head) * (keys ? a.group : 1);
    attend_sequence(a.c, p.at);
    p.warp = threadIdx.x / WARP;
    p.lane = threadIdx.x % WARP;
    p.row = (int)p.at.tile.position + p.warp * ROWS;
    float *x[2] = {memory, memory + rows * PITCH(a.width[0])};
    p.y[0] = x[1] + rows * PITCH(a.width[1]);
    p.y[1] = p.y[0] + STEP * PITCH(a.width[0]);
    p.weights = p.y[1] + STEP * PITCH(a.width[1]) + p.warp * ROWS * STEP;
    int64_t first = p.at.local_head * a.row_tokens + p.at.tile.position +
                    a.c.sequences[p.at.tile.sequence].first[keys ? SIDE_KV : SIDE_Q];
    for (int i = 0; i < 2; i++) {
        if (a.rows[i])
            plain_load(x[i], a.rows[i], a.width[i], first, rows, p.at.tile.count);
        p.x[i] = x[i] + p.warp * ROWS * PITCH(a.width[i]);
    }
    plain_partial r = {};
    for (int i = 0; i < ROWS; i++)
        r.max[i] = -INFINITY;
    if (keys)
        for (int i = 0; i < a.group; i++, p.at.head++)
            plain_columns<PASS>(a, p, p.at.local_head * a.group + i, r);
    else
        plain_columns<PASS>(a, p, p.at.local_head / a.group, r);
    for (int i = 0; i < ROWS; i++) {
        int index = p.warp * ROWS + i;
        if (index >= p.at.tile.count)
            continue;
        int64_t row = (a.head_first + p.at.local_head) * a.result_rows + p.at.tile.row + index;
        float factor = PASS == PASS_DV ? 1 : a.scale;
        if (PASS == PASS_OUT)
            factor = plain_end(a, p, r.max[i], r.sum[i], a.stats + row);
#pragma unroll
        for (int part = 0; part < PARTS_MAX; part++)
            if (part * WARP < a.width[result])
                a.result[row * a.width[result] + part * WARP + p.lane] = r.sums[i][part] * factor;
    }
}

// ---- launches -----------------------------------------------------------------------------------

static plain plain_of(const struct reference_cuda *r, const struct reference_rows *rows,
                      enum shard_side side, const struct reference_stat *stats, float *result)
{
    const struct cp_case *c = r->c;
    const float *queries[] = {r->inputs[REFERENCE_Q], c->training ? r->inputs[REFERENCE_DO] : NULL};
    const float *keys[] = {r->inputs[REFERENCE_K], r->inputs[REFERENCE_V]};
    plain a = attend_begin<plain>(r, rows, side, queries, keys);
    a.scale = (float)case_scale(c);
    a.stats = (reference_stat *)stats;
    a.result = result;
    return a;
}

template <pass PASS>
static void plain_run(const struct reference_cuda *r, const struct reference_rows *rows,
                      const plain &a)
{
    const int tile_rows = WARPS * ROWS;
    size_t floats = (tile_rows + STEP) * (PITCH(a.width[0]) + PITCH(a.width[1])) + tile_rows * STEP;
    int64_t blocks = rows->tile_count * a.heads * (REFERENCE_TILE_ROWS / tile_rows);
    if (blocks == 0 || !queue_note(r->queue,
                                   cudaFuncSetAttribute(plain_kernel<PASS>,
                                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                        (int)(floats * sizeof(float))),
                                   "the shared memory of the twin"))
        return;
    plain_kernel<PASS>
        <<<(unsigned)blocks, WARPS * WARP, floats * sizeof(float), r->queue->stream>>>(a);
    queue_launched(r->queue, "the twin");
}

void reference32_out(const struct reference_cuda *r, const struct reference_rows *queries,
                     float *out, struct reference_stat *stats)
{
    plain_run<PASS_OUT>(r, queries, plain_of(r, queries, SIDE_Q, stats, out));
}

void reference32_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                    const struct reference_stat *stats, const struct reference_dbias *dbias,
                    float *dq)
{
    plain a = plain_of(r, queries, SIDE_Q, stats, dq);
    a.dbias = *dbias;
    plain_run<PASS_DQ>(r, queries, a);
}

void reference32_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                     const struct reference_stat *stats, float *dk, float *dv)
{
    plain_run<PASS_DV>(r, keys, plain_of(r, keys, SIDE_KV, stats, dv));
    plain_run<PASS_DK>(r, keys, plain_of(r, keys, SIDE_KV, stats, dk));
}
