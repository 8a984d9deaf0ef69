// SPDX-License-Identifier: Apache-2.0
// Reference and twin of cases with 16-bit dtypes, computed together on tensor cores.
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
// Products of 16-bit inputs are exact in fp32, so scores and dP have the errors of fp32 sums. Each
// weight is split into the twin's weight, rounded to the dtype, and the rest up to the reference's
// weight. Both are multiplied by the same operand. The first result is the twin's; the sum of both
// is the reference's.
//
// A block has a tile of rows of one head and loops over the columns in steps of HMMA_STEP. SPLIT
// warps share HMMA_ROWS rows. Each computes the weights of its part of a step's columns. They
// exchange these weights, and then each accumulates its part of the result's columns with all
// weights.
#ifndef CPATTN_JUDGE_CUDA_REFERENCE16_CUH
#define CPATTN_JUDGE_CUDA_REFERENCE16_CUH

#include "judge/cuda/reference16_weights.cuh"

// ---- a block's work -----------------------------------------------------------------------------

// Groups of columns of the result per part, rounded up. The last part may have fewer, or none.
template <pass PASS, int SPLIT> static __device__ __forceinline__ int part_groups(const attend16 &a)
{
    return (a.width[pass_is_gradient(PASS) ? 0 : 1] / HMMA_GROUP + SPLIT - 1) / SPLIT;
}

// Adds one step of columns, in stage `stage` of shared memory, to the results of the warp.
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
            group_weigh<T, PASS, EXTRAS>(a, p, column + skip, own, stats, at / HMMA_TILE, r, w);
        }
    }
    weights_share<SPLIT>(p, w);
    int most = part_groups<PASS, SPLIT>(a), all = a.width[operand] / HMMA_GROUP;
    hmma_add_weighted<T, GROUPS>(r.sums, w, y[operand] + p.part * most * HMMA_GROUP * 2,
                                 HMMA_PITCH(a.width[operand]), min(most, all - p.part * most));
}

// Starts the asynchronous copy of one step into a stage, as one commit group per thread: columns of
// `local_head`, a head of the columns' side among those in memory, and with rows of keys the
// statistics of these queries. Called by the whole block.
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

// Adds all columns of the block; with rows of keys, those of all query heads that share the key
// head. Step i is computed while step i + stages - 1 is in flight; iterations i < 0 only fetch.
// Called by the whole block.
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

// Returns the sum over the lanes and warps that share a row: row g for m = 0, row g + 8 for m = 1.
// Called by all warps that share rows.
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

// Stores the LSE in *stat unless it is NULL, and returns the factor that normalizes the sums of the
// row. The sink is one more logit, whose value is zero.
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

// Stores the results of the warp and the numbers of its rows: LSE and largest logit, or terms.
template <class T, pass PASS, int SPLIT, int GROUPS, bool EXTRAS>
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
        if (EXTRAS && PASS == PASS_DQ && a.dbias.terms) {
            double terms = sqrt(row_sum<SPLIT>(p, r.bias_terms[m], m));
            if (there && p.t == 0 && p.part == 0)
                a.dbias.terms[row] = (float)terms;
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
#define SHARED_SUMS    (HMMA_ROWS * sizeof(double))                        // per warp
#define SHARED_WEIGHTS (2 * (HMMA_STEP / HMMA_DEPTH) * 32 * sizeof(uint4)) // per HMMA_ROWS rows

// Bytes of dynamic shared memory of a block, in the layout of memory_share().
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

// Fills the place of the block and warp. False if the block has no rows. Several blocks share a
// tile if it has more rows than a block.
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

// Grid: tiles x blocks per tile x heads of the rows' side. EXTRAS: the case has a bias or a
// softcap. GROUPS: groups of columns of the result per warp. BLOCKS: minimum blocks per
// multiprocessor.
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
    results_store<T, PASS, SPLIT, GROUPS, EXTRAS>(a, p, r);
}

// ---- launches -----------------------------------------------------------------------------------

// Bytes of a multiprocessor's shared memory that each block takes in addition to its own.
#define SHARED_RESERVED 1024

// Chooses two stages and all row warps if they fit into `room` bytes; else one stage, and as many
// row warps as fit into `most` bytes.
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

// Two warps share rows (SPLIT 2) if heads are wide, or if a bias or a softcap needs many registers.
template <class T, pass PASS>
static void pass_run(const struct reference_cuda *r, const struct reference_rows *rows, attend16 &a)
{
    if (a.c.bias.present || a.c.softcap != 0)
        pass_launch<T, PASS, 2, 4, 1, true>(r, rows, a);
    else if (a.width[0] > 128 || a.width[1] > 128)
        pass_launch<T, PASS, 2, 4, 1, false>(r, rows, a);
    else if (a.width[0] > 64 || a.width[1] > 64)
        pass_launch<T, PASS, 1, 4, 2, false>(r, rows, a);
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
