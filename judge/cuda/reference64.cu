// SPDX-License-Identifier: Apache-2.0
// All four passes of the reference have one shape: a row of the result is the sum over the columns
// of a weight times a row of an operand,
//
//     pass   rows     columns  weight of (row, column)  operand
//     out    queries  keys     softmax, online          V
//     dQ     queries  keys     dS                       K
//     dV     keys     queries  P                        dO
//     dK     keys     queries  dS                       Q
//
// The weights come from one or two products of rows and columns: the scores Q K', and dP = dO V'. A
// block has a tile of rows of one head and up to DMMA_SLICE columns of the result. It loops over
// the columns in steps of DMMA_STEP. Each warp has DMMA_ROWS rows and keeps scores, weights and
// results in registers.
#include "judge/cuda/reference_cuda.h"

#include <math.h>

#include "judge/cuda/attend.cuh"
#include "judge/cuda/dmma.cuh"
#include "judge/cuda/reference64.h"

extern "C" {
#include "judge/rules.h"
}

#define WARPS_MAX (REFERENCE_TILE_ROWS / DMMA_ROWS)

enum pass { PASS_OUT, PASS_DQ, PASS_DV, PASS_DK };

struct attend {
    attend_case c;
    const float *rows[2], *columns[2]; // Q and dO, or K and V
    int64_t row_tokens, column_tokens;
    int width[2]; // padded dims of Q and K, of V and dO
    const reference_tile *tiles;
    int heads, head_first; // heads of the rows' side whose inputs are in memory
    int group;             // query heads per key head
    double scale, softcap;
    double products; // rules_product_squares()
    const float *sinks;
    const reference_stat64 *stats; // of the queries
    int64_t query_rows;            // statistics per head
    double *result;
    reference_stat64 *result_stats;
    float *result_max, *result_terms;
    int64_t result_rows; // per head
    reference_dbias dbias;
};

// ---- one block ----------------------------------------------------------------------------------

// The tile and head of a block, and a warp's part of them.
struct warp_place {
    attend_place at;
    int warp, g, t;      // see dmma.cuh
    int row;             // position of the warp's first row
    float *x[2], *y[2];  // shared memory: operands of the block's rows, of a step's columns
    double *lse, *delta; // shared memory: of the block's rows (dQ), or of a step's columns (dV, dK)
};

// Starts a cp.async of 16 bytes to shared memory; if `there` is false, it writes zeros.
static __device__ __forceinline__ void copy16(float *to, const float *from, bool there)
{
    unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
                 "r"(there ? 16 : 0));
}

// Starts copies of rows [first, first + count) of an operand of one head to shared memory. Rows
// from `valid` on become zero. Called by the whole block.
static __device__ __forceinline__ void load_rows(float *to, const float *from, int width,
                                                 int64_t first, int count, int valid)
{
    int parts = width / 4;
    for (int i = threadIdx.x; i < count * parts; i += blockDim.x) {
        int row = i / parts, part = i % parts;
        int64_t at = first + (row < valid ? row : 0);
        copy16(to + row * DMMA_PITCH(width) + part * 4, from + at * width + part * 4, row < valid);
    }
}

// Waits until the copies of all threads of the block are complete and visible.
static __device__ __forceinline__ void load_wait()
{
    asm volatile("cp.async.wait_all;");
    __syncthreads();
}

// ---- weights ------------------------------------------------------------------------------------

// Returns the logit of a pair from its score. Sets *slope to the derivative of the softcap.
template <bool EXTRAS>
static __device__ __forceinline__ double logit_of(const attend &a, const warp_place &p,
                                                  double score, int query, int key, double *slope)
{
    double logit = score * a.scale;
    *slope = 1;
    if (EXTRAS && a.softcap != 0) {
        double x = logit / a.softcap, e = exp(-2 * fabs(x));
        logit = a.softcap * tanh(x);
        *slope = 4 * e / ((1 + e) * (1 + e)); // 1 - tanh^2 without cancellation
    }
    if (EXTRAS && a.c.bias.present)
        logit += attend_bias(a.c, p.at, query, key);
    return logit;
}

// Maximum and sum over the four lanes that share a row.
static __device__ __forceinline__ double quad_max(double x)
{
    x = fmax(x, __shfl_xor_sync(~0u, x, 1));
    return fmax(x, __shfl_xor_sync(~0u, x, 2));
}

static __device__ __forceinline__ double quad_sum(double x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// Largest logit so far and the sum of exp(logit - largest), for rows g and g + 8.
struct online {
    double max[2], sum[2];
};

// Online softmax of one step: replaces each score by exp(logit - largest so far), or by 0 if the
// key is hidden. fade[m] becomes the factor that rescales the earlier sums of row g + 8 * m.
template <bool EXTRAS>
static __device__ __forceinline__ void softmax_step(const attend &a, const warp_place &p,
                                                    int column, double s[DMMA_TILES][4], online &o,
                                                    double fade[2])
{
#pragma unroll
    for (int m = 0; m < 2; m++) {
        int query = p.row + p.g + 8 * m;
        double top = o.max[m];
#pragma unroll
        for (int n = 0; n < DMMA_TILES; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int key = column + 8 * n + 2 * p.t + e;
                double *x = &s[n][2 * m + e], slope;
                *x = attend_sees(a.c, p.at, query, key)
                         ? logit_of<EXTRAS>(a, p, *x, query, key, &slope)
                         : -INFINITY;
                top = fmax(top, *x);
            }
        top = quad_max(top);
        double sum = 0;
#pragma unroll
        for (int n = 0; n < DMMA_TILES; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                double *x = &s[n][2 * m + e];
                *x = *x == -INFINITY ? 0 : exp(*x - top);
                sum += *x;
            }
        fade[m] = o.max[m] == -INFINITY ? 0 : exp(o.max[m] - top);
        o.max[m] = top;
        o.sum[m] = o.sum[m] * fade[m] + quad_sum(sum);
    }
}

// Adds dS of a pair to the gradient of the bias, with atomics. If rows share a line of the bias, dS
// is first summed over the lanes that have the same column. Called by the whole warp.
static __device__ __forceinline__ void add_dbias(const attend &a, const warp_place &p, int row,
                                                 int key, double ds)
{
    int64_t line = p.at.tile.bias_row + (row - (int)p.at.tile.position) * a.dbias.row_step;
    if (a.dbias.row_step == 0)
        for (int lanes = 4; lanes < 32; lanes *= 2)
            ds += __shfl_xor_sync(~0u, ds, lanes);
    if (ds != 0 && (a.dbias.row_step != 0 || p.g == 0))
        atomicAdd(a.dbias.data + p.at.head * a.dbias.head_stride + line * a.c.seqlen_kv + key, ds);
}

// Replaces the scores of a step by the weights P, or dS from dP. Adds the squares of the terms of
// dS to `terms` and `bias_terms`, for rows g and g + 8. p.lse and p.delta are those of the rows,
// or, with rows of keys, of the columns.
template <pass PASS, bool EXTRAS>
static __device__ __forceinline__ void
weigh_step(const attend &a, const warp_place &p, int column, double s[DMMA_TILES][4],
           const double dp[DMMA_TILES][4], double terms[2], double bias_terms[2])
{
    const bool keys = PASS == PASS_DV || PASS == PASS_DK;
#pragma unroll
    for (int n = 0; n < DMMA_TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int m = i / 2, offset = 8 * n + 2 * p.t + i % 2, own = p.g + 8 * m;
            int row = p.row + own, statistic = keys ? offset : p.warp * DMMA_ROWS + own;
            int query = keys ? column + offset : row, key = keys ? row : column + offset;
            double slope = 1, *x = &s[n][i], weight = 0;
            if ((!EXTRAS || row < p.at.row_end) && attend_sees(a.c, p.at, query, key)) {
                double logit = logit_of<EXTRAS>(a, p, *x, query, key, &slope);
                weight = exp(logit - p.lse[statistic]);
                if (PASS != PASS_DV) {
                    double d = p.delta[statistic];
                    double term = weight * weight * (dp[n][i] * dp[n][i] + d * d + a.products);
                    double moved = attend_slope_twin(a.c, (float)slope, i % 2);
                    terms[m] += term * moved * moved;
                    if (EXTRAS && PASS == PASS_DQ)
                        bias_terms[m] += term;
                    weight *= dp[n][i] - d;
                }
            }
            if (EXTRAS && PASS == PASS_DQ && a.dbias.data && blockIdx.y == 0)
                add_dbias(a, p, row, key, weight);
            *x = PASS == PASS_DV ? weight : weight * slope;
        }
}

// ---- passes -------------------------------------------------------------------------------------

// Partial results of a warp: accumulators, and the state of the online softmax.
struct partial {
    dmma_results sums;
    online o;
    double terms[2], bias_terms[2]; // sums of squares of a lane
};

// Operand i of the warp's rows, in shared memory.
static __device__ __forceinline__ const float *warp_rows(const attend &a, const warp_place &p,
                                                         int i)
{
    return p.x[i] + p.warp * DMMA_ROWS * DMMA_PITCH(a.width[i]);
}

// Adds one step of columns, which is in shared memory, to the results of the warp.
template <pass PASS, bool EXTRAS>
static __device__ __forceinline__ void step_add(const attend &a, const warp_place &p, int column,
                                                int groups, struct partial &r)
{
    const bool gradient = PASS == PASS_DQ || PASS == PASS_DK;
    const int operand = gradient ? 0 : 1;
    double s[DMMA_TILES][4] = {}, dp[DMMA_TILES][4] = {};
    dmma_product(s, warp_rows(a, p, 0), p.y[0], a.width[0]);
    if (gradient)
        dmma_product(dp, warp_rows(a, p, 1), p.y[1], a.width[1]);
    if (PASS == PASS_OUT) {
        double fade[2];
        softmax_step<EXTRAS>(a, p, column, s, r.o, fade);
#pragma unroll
        for (int i = 0; i < DMMA_GROUPS * 16; i++)
            r.sums[i / 16][i / 4 % 4][i % 4] *= fade[i % 4 / 2];
    } else {
        weigh_step<PASS, EXTRAS>(a, p, column, s, dp, r.terms, r.bias_terms);
    }
    dmma_add_weighted(r.sums, s, p.y[operand] + blockIdx.y * DMMA_SLICE,
                      DMMA_PITCH(a.width[operand]), groups);
}

// Copies one step to shared memory and waits for it: `valid` columns of `head`, a head of the
// columns' side among those in memory, and with rows of keys the statistics of these queries.
// Called by the whole block.
template <pass PASS>
static __device__ __forceinline__ void step_fetch(const attend &a, const warp_place &p, int head,
                                                  int column, int valid)
{
    const bool keys = PASS == PASS_DV || PASS == PASS_DK;
    const reference_sequence &sequence = a.c.sequences[p.at.tile.sequence];
    int64_t first = head * a.column_tokens + sequence.first[keys ? SIDE_Q : SIDE_KV] + column;
    for (int i = 0; i < 2; i++)
        load_rows(p.y[i], a.columns[i], a.width[i], first, DMMA_STEP, valid);
    if (keys && threadIdx.x < DMMA_STEP) {
        bool there = (int)threadIdx.x < valid;
        int64_t query = p.at.head * a.query_rows + sequence.first[SIDE_Q] + column + threadIdx.x;
        p.lse[threadIdx.x] = there ? a.stats[query].lse : 0;
        if (PASS == PASS_DK)
            p.delta[threadIdx.x] = there ? a.stats[query].delta : 0;
    }
    load_wait();
}

// Adds all columns of `head`, a head of the columns' side among those in memory. Called by the
// whole block.
template <pass PASS, bool EXTRAS>
static __device__ __forceinline__ void columns_add(const attend &a, const warp_place &p, int head,
                                                   int groups, struct partial &r)
{
    const bool keys = PASS == PASS_DV || PASS == PASS_DK;
    int begin, end, warp_begin, warp_end;
    attend_columns<keys>(a.c, p.at, (int)p.at.tile.position, p.at.tile.count, &begin, &end);
    attend_columns<keys>(a.c, p.at, p.row, DMMA_ROWS, &warp_begin, &warp_end);
    for (int column = begin; column < end; column += DMMA_STEP) {
        __syncthreads();
        step_fetch<PASS>(a, p, head, column, min(DMMA_STEP, end - column));
        if (column < warp_end && column + DMMA_STEP > warp_begin)
            step_add<PASS, EXTRAS>(a, p, column, groups, r);
    }
}

// Sets *lse and returns the factor that normalizes the sums of row g + 8 * m. The sink is one more
// logit, whose value is zero.
static __device__ __forceinline__ double softmax_end(const attend &a, const warp_place &p,
                                                     const online &o, int m, double *lse)
{
    double sink = a.sinks[p.at.head], top = fmax(o.max[m], sink);
    *lse = -INFINITY;
    if (top == -INFINITY)
        return 0;
    double seen = o.max[m] == -INFINITY ? 0 : exp(o.max[m] - top);
    double sum = o.sum[m] * seen + exp(sink - top);
    *lse = top + log(sum);
    return seen / sum;
}

// Stores the terms of a row, or its LSE and largest logit. Returns the factor for its elements.
// Called by the whole warp.
template <pass PASS>
static __device__ __forceinline__ double row_end(const attend &a, const warp_place &p,
                                                 const struct partial &r, int m, int64_t row)
{
    bool first = p.t == 0 && blockIdx.y == 0;
    double terms = a.scale * sqrt(quad_sum(r.terms[m])), lse, factor;
    double bias_terms = sqrt(quad_sum(r.bias_terms[m]));
    bool there = p.warp * DMMA_ROWS + p.g + 8 * m < p.at.tile.count;
    if (PASS == PASS_DV)
        return 1;
    if (PASS != PASS_OUT) {
        if (first && there)
            a.result_terms[row] = (float)terms;
        if (PASS == PASS_DQ && first && there && a.dbias.terms)
            a.dbias.terms[row] = (float)bias_terms;
        return a.scale;
    }
    factor = softmax_end(a, p, r.o, m, &lse);
    if (first && there)
        a.result_stats[row].lse = lse;
    if (first && there && a.result_max)
        a.result_max[row] = (float)r.o.max[m];
    return factor;
}

template <pass PASS>
static __device__ __forceinline__ void results_store(const attend &a, const warp_place &p,
                                                     int groups, const struct partial &r)
{
    int width = a.width[PASS == PASS_DQ || PASS == PASS_DK ? 0 : 1];
#pragma unroll
    for (int m = 0; m < 2; m++) {
        int index = p.warp * DMMA_ROWS + p.g + 8 * m;
        int64_t row = (a.head_first + p.at.local_head) * a.result_rows + p.at.tile.row + index;
        double factor = row_end<PASS>(a, p, r, m, row);
        if (index >= p.at.tile.count)
            continue;
        double *to = a.result + row * width + blockIdx.y * DMMA_SLICE + 8 * p.t;
#pragma unroll
        for (int group = 0; group < DMMA_GROUPS; group++)
#pragma unroll
            for (int i = 0; i < 8 && group < groups; i += 2)
                *(double2 *)(to + group * DMMA_GROUP + i) =
                    make_double2(r.sums[group][i % 4][2 * m + i / 4] * factor,
                                 r.sums[group][i % 4 + 1][2 * m + i / 4] * factor);
    }
}

// Lays out the block's operands in shared memory. `both`: its rows have two operands.
static __device__ __forceinline__ void memory_share(const attend &a, bool both, double *memory,
                                                    warp_place &p)
{
    int rows = (int)blockDim.x / 32 * DMMA_ROWS;
    p.lse = memory;
    p.delta = p.lse + REFERENCE_TILE_ROWS;
    p.y[0] = (float *)(p.delta + REFERENCE_TILE_ROWS);
    p.y[1] = p.y[0] + DMMA_STEP * DMMA_PITCH(a.width[0]);
    p.x[0] = p.y[1] + DMMA_STEP * DMMA_PITCH(a.width[1]);
    p.x[1] = both ? p.x[0] + rows * DMMA_PITCH(a.width[0]) : NULL;
}

static size_t memory_bytes(const attend &a, bool both, int warps)
{
    int64_t rows = warps * DMMA_ROWS, second = both ? rows : 0;
    return 2 * REFERENCE_TILE_ROWS * sizeof(double) +
           sizeof(float) * ((DMMA_STEP + rows) * DMMA_PITCH(a.width[0]) +
                            (DMMA_STEP + second) * DMMA_PITCH(a.width[1]));
}

// Fills the place of the block and warp. False if the block has no rows. Several blocks share a
// tile if it has more rows than a block.
static __device__ __forceinline__ bool place_find(const attend &a, bool keys, warp_place &p)
{
    int rows = blockDim.x / 32 * DMMA_ROWS, parts = REFERENCE_TILE_ROWS / rows;
    int number = blockIdx.x / a.heads, skipped = number % parts * rows;
    p.at.tile = a.tiles[number / parts];
    if (skipped >= p.at.tile.count)
        return false;
    p.at.tile.position += skipped;
    p.at.tile.row += skipped;
    p.at.tile.bias_row += skipped * a.dbias.row_step;
    p.at.tile.count = min(p.at.tile.count - skipped, rows);
    p.at.local_head = blockIdx.x % a.heads;
    p.at.head = (a.head_first + p.at.local_head) * (keys ? a.group : 1);
    attend_sequence(a.c, p.at);
    p.warp = threadIdx.x / 32;
    p.g = threadIdx.x % 32 / 4;
    p.t = threadIdx.x % 4;
    p.row = (int)p.at.tile.position + p.warp * DMMA_ROWS;
    return true;
}

// Grid: (tiles x blocks per tile x heads of the rows' side, slices of DMMA_SLICE columns of the
// result). EXTRAS: the case has a bias or a softcap.
template <pass PASS, bool EXTRAS>
__global__ void __launch_bounds__(WARPS_MAX * 32, 2) attend_kernel(const attend a)
{
    extern __shared__ __align__(16) double memory[];
    const bool keys = PASS == PASS_DV || PASS == PASS_DK;
    const bool gradient = PASS == PASS_DQ || PASS == PASS_DK;
    warp_place p;
    if (!place_find(a, keys, p))
        return;
    memory_share(a, gradient, memory, p);
    int64_t first = p.at.local_head * a.row_tokens +
                    a.c.sequences[p.at.tile.sequence].first[keys ? SIDE_KV : SIDE_Q] +
                    p.at.tile.position;
    for (int i = 0; i < (gradient ? 2 : 1); i++)
        load_rows(p.x[i], a.rows[i], a.width[i], first, blockDim.x / 32 * DMMA_ROWS,
                  p.at.tile.count);
    struct partial r = {};
    if (PASS == PASS_DQ && threadIdx.x < blockDim.x / 32 * DMMA_ROWS) {
        int index = min((int)threadIdx.x, p.at.tile.count - 1);
        int64_t row = p.at.head * a.query_rows + p.at.tile.row + index;
        p.lse[threadIdx.x] = a.stats[row].lse;
        p.delta[threadIdx.x] = a.stats[row].delta;
    }
    r.o.max[0] = r.o.max[1] = -INFINITY;
    int groups =
        min(DMMA_GROUPS, a.width[gradient ? 0 : 1] / DMMA_GROUP - (int)blockIdx.y * DMMA_GROUPS);
    if (keys)
        for (int i = 0; i < a.group; i++, p.at.head++)
            columns_add<PASS, EXTRAS>(a, p, p.at.local_head * a.group + i, groups, r);
    else
        columns_add<PASS, EXTRAS>(a, p, p.at.local_head / a.group, groups, r);
    results_store<PASS>(a, p, groups, r);
}

// ---- launches -----------------------------------------------------------------------------------

static attend attend_of(const struct reference_cuda *r, const struct reference_rows *rows,
                        enum shard_side side)
{
    const struct cp_case *c = r->c;
    const float *queries[] = {r->inputs[REFERENCE_Q], r->inputs[REFERENCE_DO]};
    const float *keys[] = {r->inputs[REFERENCE_K], r->inputs[REFERENCE_V]};
    attend a = attend_begin<attend>(r, rows, side, queries, keys);
    a.scale = case_scale(c);
    a.products = rules_product_squares(c);
    a.softcap = c->softcap;
    return a;
}

// Number of warps per block: as many as shared memory has room for, at most one per DMMA_ROWS rows
// of a tile.
static int warps_that_fit(const struct reference_cuda *r, const attend &a, bool both)
{
    int warps = WARPS_MAX;
    while (warps > 1 && memory_bytes(a, both, warps) > (size_t)r->queue->shared_bytes_max)
        warps /= 2;
    return warps;
}

template <pass PASS, bool EXTRAS>
static void pass_launch(const struct reference_cuda *r, const struct reference_rows *rows,
                        const attend &a)
{
    const bool gradient = PASS == PASS_DQ || PASS == PASS_DK;
    int warps = warps_that_fit(r, a, gradient);
    int64_t blocks = rows->tile_count * a.heads * (WARPS_MAX / warps);
    size_t bytes = memory_bytes(a, gradient, warps);
    int slices = (a.width[gradient ? 0 : 1] + DMMA_SLICE - 1) / DMMA_SLICE;
    if (blocks == 0)
        return;
    if (!queue_note(r->queue,
                    cudaFuncSetAttribute(attend_kernel<PASS, EXTRAS>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                    "the shared memory of the reference"))
        return;
    attend_kernel<PASS, EXTRAS>
        <<<dim3((unsigned)blocks, slices), warps * 32, bytes, r->queue->stream>>>(a);
    queue_launched(r->queue, "the reference");
}

template <pass PASS>
static void pass_run(const struct reference_cuda *r, const struct reference_rows *rows,
                     const attend &a)
{
    if (a.c.bias.present || a.softcap != 0)
        pass_launch<PASS, true>(r, rows, a);
    else
        pass_launch<PASS, false>(r, rows, a);
}

void reference64_out(const struct reference_cuda *r, const struct reference_rows *queries,
                     double *out, struct reference_stat64 *stats, float *max)
{
    attend a = attend_of(r, queries, SIDE_Q);
    a.result = out;
    a.result_stats = stats;
    a.result_max = max;
    pass_run<PASS_OUT>(r, queries, a);
}

void reference64_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                    const struct reference_stat64 *stats, const struct reference_dbias *dbias,
                    double *dq, float *terms)
{
    attend a = attend_of(r, queries, SIDE_Q);
    a.stats = stats;
    a.dbias = *dbias;
    a.result = dq;
    a.result_terms = terms;
    pass_run<PASS_DQ>(r, queries, a);
}

void reference64_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                     const struct reference_stat64 *stats, double *dk, double *dv, float *terms)
{
    attend a = attend_of(r, keys, SIDE_KV);
    a.stats = stats;
    a.result = dv;
    pass_run<PASS_DV>(r, keys, a);
    a.result = dk;
    a.result_terms = terms;
    pass_run<PASS_DK>(r, keys, a);
}
