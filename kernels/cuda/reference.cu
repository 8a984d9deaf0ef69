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
// where the weights come of one or two products of the rows with the columns: the scores Q K', and
// dP = dO V'. A block owns a tile of rows of one head and up to DMMA_SLICE columns of the result,
// and goes through the columns in steps of DMMA_STEP; each warp has DMMA_ROWS rows and keeps
// scores, weights and results in registers.
#include "kernels/cuda/reference_cuda.h"

#include <math.h>

#include "kernels/cuda/dmma.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/internal.h"

#define WARPS_MAX (REFERENCE_TILE_ROWS / DMMA_ROWS)

// Bounds of a window that nothing bounds; beyond any distance of two tokens, and no sum of two
// overflows.
#define DISTANCE_MAX (1 << 26)

enum pass { PASS_OUT, PASS_DQ, PASS_DV, PASS_DK };

struct bias_source {
    struct input_draw draw;
    enum case_dtype dtype;
    bool present;
    int64_t batch_step, head_step, row_step; // elements; 0 where one is for all
};

struct attend {
    const float *rows[2], *columns[2]; // Q and dO, or K and V
    int64_t row_tokens, column_tokens;
    int width[2]; // padded dims of Q and K, of V and dO
    const reference_tile *tiles;
    const reference_sequence *sequences;
    int heads, head_first; // query heads
    int group;
    bool bottom_right;
    int left, right;
    double scale, softcap;
    bias_source bias;
    const float *sinks;
    const double *lse, *delta; // of the queries
    int64_t query_rows;        // of a head of these
    double *result, *result_lse, *result_max, *result_terms;
    int64_t result_rows;
    reference_dbias dbias;
    int64_t seqlen_kv;
};

// ---- one block ----------------------------------------------------------------------------------

// A block's place, and what a warp of it works on.
struct place {
    reference_tile tile;
    int queries, keys;    // of the sequence
    int shift;            // the key opposite query i is i + shift
    int head, local_head; // query head of the case, and of those whose inputs are there
    int warp, g, t;       // see dmma.cuh
    int row;              // position of the warp's first row
    int row_end;          // behind the tile's last row
    float *x[2], *y[2];
    double *lse, *delta; // of the queries among the block's rows, or of those of a step
};

// The definition of the mask, for one pair of positions.
static __device__ __forceinline__ bool sees(const attend &a, const place &p, int query, int key)
{
    int ahead = key - (query + p.shift);
    return query < p.queries && key < p.keys && -a.left <= ahead && ahead <= a.right;
}

// Columns [*begin, *end) outside of which nothing is seen from rows [first, first + count).
template <bool KEYS>
static __device__ __forceinline__ void columns_seen(const attend &a, const place &p, int first,
                                                    int count, int *begin, int *end)
{
    int last = first + count - 1;
    int from = KEYS ? first - p.shift - a.right : first + p.shift - a.left;
    int to = KEYS ? last - p.shift + a.left : last + p.shift + a.right;
    *begin = max(from, 0);
    *end = min(to + 1, KEYS ? p.queries : p.keys);
}

static __device__ __forceinline__ void copy16(float *to, const float *from, bool there)
{
    unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
                 "r"(there ? 16 : 0));
}

// Rows [first, first + count) of an operand of one head; those from `valid` on become zero.
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

static __device__ __forceinline__ void load_wait()
{
    asm volatile("cp.async.wait_all;");
    __syncthreads();
}

// ---- weights ------------------------------------------------------------------------------------

static __device__ __forceinline__ float bias_of(const attend &a, const place &p, int query, int key)
{
    int64_t index = p.tile.sequence * a.bias.batch_step + p.head * a.bias.head_step +
                    query * a.bias.row_step + key;
    return element_drawn(a.bias.draw, a.bias.dtype, (uint64_t)index);
}

// The logit of a pair, from its score; *slope becomes that of the softcap.
template <bool EXTRAS>
static __device__ __forceinline__ double logit_of(const attend &a, const place &p, double score,
                                                  int query, int key, double *slope)
{
    double logit = score * a.scale;
    *slope = 1;
    if (EXTRAS && a.softcap != 0) {
        double t = tanh(logit / a.softcap);
        logit = a.softcap * t;
        *slope = 1 - t * t;
    }
    if (EXTRAS && a.bias.present)
        logit += bias_of(a, p, query, key);
    return logit;
}

// Of the four lanes that share a row.
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

// Scores of a step become exp(logit - largest so far), 0 where the key is not seen. `fade` is what
// earlier sums are to be multiplied by.
template <bool EXTRAS>
static __device__ __forceinline__ void softmax_step(const attend &a, const place &p, int column,
                                                    double s[DMMA_TILES][4], online &o,
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
                *x = sees(a, p, query, key) ? logit_of<EXTRAS>(a, p, *x, query, key, &slope)
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

// dS of the rows of a warp and one column, added up over rows that share a line of the bias.
static __device__ __forceinline__ void add_dbias(const attend &a, const place &p, int row, int key,
                                                 double ds)
{
    int64_t line = p.tile.bias_row + (row - (int)p.tile.position) * a.dbias.row_step;
    if (a.dbias.row_step == 0)
        for (int lanes = 4; lanes < 32; lanes *= 2)
            ds += __shfl_xor_sync(~0u, ds, lanes);
    if (ds != 0 && (a.dbias.row_step != 0 || p.g == 0))
        atomicAdd(a.dbias.data + p.head * a.dbias.head_stride + line * a.seqlen_kv + key, ds);
}

// Scores (and dP) of a step become the weights P or dS, and the squares of the terms of dS are
// added up by row. lse and delta are those of the two rows, or NULL: then those of the columns are
// in shared memory.
template <pass PASS, bool EXTRAS>
static __device__ __forceinline__ void weigh_step(const attend &a, const place &p, int column,
                                                  double s[DMMA_TILES][4],
                                                  const double dp[DMMA_TILES][4], double terms[2])
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
            if ((!EXTRAS || row < p.row_end) && sees(a, p, query, key)) {
                double logit = logit_of<EXTRAS>(a, p, *x, query, key, &slope);
                weight = exp(logit - p.lse[statistic]);
                if (PASS != PASS_DV) {
                    double d = p.delta[statistic], part = weight * slope;
                    terms[m] += part * part * (dp[n][i] * dp[n][i] + d * d);
                    weight *= dp[n][i] - d;
                }
            }
            if (EXTRAS && PASS == PASS_DQ && a.dbias.data && blockIdx.y == 0)
                add_dbias(a, p, row, key, weight);
            *x = PASS == PASS_DV ? weight : weight * slope;
        }
}

// ---- passes -------------------------------------------------------------------------------------

// What a warp has of the results, and the softmax so far.
struct partial {
    dmma_results sums;
    online o;
    double terms[2]; // sums of squares of a lane
};

// The operand of the warp's own rows.
static __device__ __forceinline__ const float *warp_rows(const attend &a, const place &p, int i)
{
    return p.x[i] + p.warp * DMMA_ROWS * DMMA_PITCH(a.width[i]);
}

template <pass PASS, bool EXTRAS>
static __device__ __forceinline__ void step_add(const attend &a, const place &p, int column,
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
        weigh_step<PASS, EXTRAS>(a, p, column, s, dp, r.terms);
    }
    dmma_add_weighted(r.sums, s, p.y[operand] + blockIdx.y * DMMA_SLICE,
                      DMMA_PITCH(a.width[operand]), groups);
}

template <pass PASS, bool EXTRAS>
static __device__ __forceinline__ void columns_add(const attend &a, const place &p, int groups,
                                                   struct partial &r)
{
    const bool keys = PASS == PASS_DV || PASS == PASS_DK;
    const reference_sequence &sequence = a.sequences[p.tile.sequence];
    int64_t base = (keys ? p.local_head : p.local_head / a.group) * a.column_tokens +
                   sequence.first[keys ? SIDE_Q : SIDE_KV];
    int64_t query = (int64_t)p.head * a.query_rows + sequence.first[SIDE_Q];
    int begin, end, warp_begin, warp_end;
    columns_seen<keys>(a, p, (int)p.tile.position, p.tile.count, &begin, &end);
    columns_seen<keys>(a, p, p.row, DMMA_ROWS, &warp_begin, &warp_end);
    for (int column = begin; column < end; column += DMMA_STEP) {
        int valid = min(DMMA_STEP, end - column);
        __syncthreads();
        for (int i = 0; i < 2; i++)
            load_rows(p.y[i], a.columns[i], a.width[i], base + column, DMMA_STEP, valid);
        if (keys && threadIdx.x < DMMA_STEP) {
            bool there = (int)threadIdx.x < valid;
            p.lse[threadIdx.x] = there ? a.lse[query + column + threadIdx.x] : 0;
            if (PASS == PASS_DK)
                p.delta[threadIdx.x] = there ? a.delta[query + column + threadIdx.x] : 0;
        }
        load_wait();
        if (column < warp_end && column + DMMA_STEP > warp_begin)
            step_add<PASS, EXTRAS>(a, p, column, groups, r);
    }
}

// LSE and the factor that completes the sums; a sink is one more logit, without a value.
static __device__ __forceinline__ double softmax_end(const attend &a, const place &p,
                                                     const online &o, int m, int64_t row)
{
    double sink = a.sinks[p.head], top = fmax(o.max[m], sink);
    if (top == -INFINITY) {
        if (p.t == 0)
            a.result_lse[row] = -INFINITY;
        return 0;
    }
    double seen = o.max[m] == -INFINITY ? 0 : exp(o.max[m] - top);
    double sum = o.sum[m] * seen + exp(sink - top);
    if (p.t == 0)
        a.result_lse[row] = top + log(sum);
    return seen / sum;
}

template <pass PASS>
static __device__ __forceinline__ void results_store(const attend &a, const place &p, int groups,
                                                     const struct partial &r)
{
    int width = a.width[PASS == PASS_DQ || PASS == PASS_DK ? 0 : 1];
#pragma unroll
    for (int m = 0; m < 2; m++) {
        int index = p.warp * DMMA_ROWS + p.g + 8 * m;
        double factor = PASS == PASS_DQ || PASS == PASS_DK ? a.scale : 1;
        double terms = a.scale * sqrt(quad_sum(r.terms[m]));
        if (index >= p.tile.count)
            continue;
        int64_t row = p.head * a.result_rows + p.tile.row + index;
        if ((PASS == PASS_DQ || PASS == PASS_DK) && p.t == 0 && blockIdx.y == 0)
            a.result_terms[row] = terms;
        if (PASS == PASS_OUT) {
            factor = softmax_end(a, p, r.o, m, row);
            if (a.result_max && p.t == 0)
                a.result_max[row] = r.o.max[m];
        }
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

// Where the block's operands are in shared memory.
static __device__ __forceinline__ void memory_share(const attend &a, bool both, double *memory,
                                                    place &p)
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

// What the block is to do, or nothing (then false): blocks of fewer warps than a tile has rows for
// share it.
static __device__ __forceinline__ bool place_find(const attend &a, place &p)
{
    int rows = blockDim.x / 32 * DMMA_ROWS, parts = REFERENCE_TILE_ROWS / rows;
    int number = blockIdx.x / a.heads, skipped = number % parts * rows;
    p.tile = a.tiles[number / parts];
    if (skipped >= p.tile.count)
        return false;
    p.tile.position += skipped;
    p.tile.row += skipped;
    p.tile.bias_row += skipped * a.dbias.row_step;
    p.tile.count = min(p.tile.count - skipped, rows);
    const reference_sequence &sequence = a.sequences[p.tile.sequence];
    p.queries = (int)sequence.length[SIDE_Q];
    p.keys = (int)sequence.length[SIDE_KV];
    p.shift = a.bottom_right ? p.keys - p.queries : 0;
    p.warp = threadIdx.x / 32;
    p.g = threadIdx.x % 32 / 4;
    p.t = threadIdx.x % 4;
    p.row = (int)p.tile.position + p.warp * DMMA_ROWS;
    p.row_end = (int)p.tile.position + p.tile.count;
    p.local_head = blockIdx.x % a.heads;
    p.head = a.head_first + p.local_head;
    return true;
}

// Grid (tiles x heads, slices of the result).
template <pass PASS, bool EXTRAS>
__global__ void __launch_bounds__(WARPS_MAX * 32, 2) attend_kernel(const attend a)
{
    extern __shared__ __align__(16) double memory[];
    const bool keys = PASS == PASS_DV || PASS == PASS_DK;
    const bool gradient = PASS == PASS_DQ || PASS == PASS_DK;
    place p;
    if (!place_find(a, p))
        return;
    memory_share(a, gradient, memory, p);
    int64_t first = (keys ? p.local_head / a.group : p.local_head) * a.row_tokens +
                    a.sequences[p.tile.sequence].first[keys ? SIDE_KV : SIDE_Q] + p.tile.position;
    for (int i = 0; i < (gradient ? 2 : 1); i++)
        load_rows(p.x[i], a.rows[i], a.width[i], first, blockDim.x / 32 * DMMA_ROWS, p.tile.count);
    struct partial r = {};
    if (PASS == PASS_DQ && threadIdx.x < blockDim.x / 32 * DMMA_ROWS) {
        int index = min((int)threadIdx.x, p.tile.count - 1);
        int64_t row = p.head * a.query_rows + p.tile.row + index;
        p.lse[threadIdx.x] = a.lse[row];
        p.delta[threadIdx.x] = a.delta[row];
    }
    r.o.max[0] = r.o.max[1] = -INFINITY;
    int groups =
        min(DMMA_GROUPS, a.width[gradient ? 0 : 1] / DMMA_GROUP - (int)blockIdx.y * DMMA_GROUPS);
    columns_add<PASS, EXTRAS>(a, p, groups, r);
    results_store<PASS>(a, p, groups, r);
}

// ---- launches -----------------------------------------------------------------------------------

static int clamped(int64_t distance)
{
    return distance == WINDOW_UNBOUNDED || distance > DISTANCE_MAX ? DISTANCE_MAX : (int)distance;
}

static bias_source bias_source_of(const struct cp_case *c)
{
    bias_source bias = {};
    if (c->bias == BIAS_NONE)
        return bias;
    struct bias_dims dims = input_bias_dims(c);
    bias.present = true;
    bias.draw = input_draw_of(c, INPUT_BIAS);
    bias.dtype = c->dtype;
    bias.row_step = dims.rows > 1 ? c->seqlen_kv : 0;
    bias.head_step = dims.heads > 1 ? dims.rows * c->seqlen_kv : 0;
    bias.batch_step = dims.batch > 1 ? dims.heads * dims.rows * c->seqlen_kv : 0;
    return bias;
}

// What all passes share: rows of the given side, columns of the other.
static attend attend_of(const struct reference_cuda *r, const struct reference_rows *rows,
                        enum shard_side side)
{
    const struct cp_case *c = r->c;
    const float *queries[] = {r->inputs[REFERENCE_Q], r->inputs[REFERENCE_DO]};
    const float *keys[] = {r->inputs[REFERENCE_K], r->inputs[REFERENCE_V]};
    attend a = {};
    for (int i = 0; i < 2; i++) {
        a.rows[i] = side == SIDE_Q ? queries[i] : keys[i];
        a.columns[i] = side == SIDE_Q ? keys[i] : queries[i];
    }
    a.row_tokens = r->tokens[side];
    a.column_tokens = r->tokens[side == SIDE_Q ? SIDE_KV : SIDE_Q];
    a.width[0] = reference_cuda_padded(c->head_dim_qk);
    a.width[1] = reference_cuda_padded(c->head_dim_v);
    a.tiles = rows->tiles;
    a.sequences = r->sequences;
    a.group = c->heads / c->kv_heads;
    a.heads = r->kv_count * a.group;
    a.head_first = r->kv_first * a.group;
    bool causal = c->mask == MASK_CAUSAL || c->mask == MASK_CAUSAL_BOTTOM_RIGHT;
    a.bottom_right = c->mask == MASK_CAUSAL_BOTTOM_RIGHT || c->mask == MASK_NONE_BOTTOM_RIGHT;
    a.left = clamped(c->window_left);
    a.right = causal ? 0 : clamped(c->window_right);
    a.scale = case_scale(c);
    a.softcap = c->softcap;
    a.bias = bias_source_of(c);
    a.sinks = r->sinks;
    a.query_rows = side == SIDE_Q ? rows->rows : r->tokens[SIDE_Q];
    a.result_rows = rows->rows;
    a.seqlen_kv = c->seqlen_kv;
    return a;
}

// As many warps as the device's shared memory has room for, a tile's rows at most.
static int warps_that_fit(const struct reference_cuda *r, const attend &a, bool both)
{
    int warps = WARPS_MAX;
    while (warps > 1 && memory_bytes(a, both, warps) > (size_t)r->backend->shared_bytes_max)
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
    if (!cuda_note(r->backend,
                   cudaFuncSetAttribute(attend_kernel<PASS, EXTRAS>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                   "the shared memory of the reference"))
        return;
    attend_kernel<PASS, EXTRAS>
        <<<dim3((unsigned)blocks, slices), warps * 32, bytes, r->backend->stream>>>(a);
    cuda_launched(r->backend, "the reference");
}

template <pass PASS>
static void pass_run(const struct reference_cuda *r, const struct reference_rows *rows,
                     const attend &a)
{
    if (a.bias.present || a.softcap != 0)
        pass_launch<PASS, true>(r, rows, a);
    else
        pass_launch<PASS, false>(r, rows, a);
}

void reference_cuda_out(const struct reference_cuda *r, const struct reference_rows *queries,
                        double *out, double *lse, double *max)
{
    attend a = attend_of(r, queries, SIDE_Q);
    a.result = out;
    a.result_lse = lse;
    a.result_max = max;
    pass_run<PASS_OUT>(r, queries, a);
}

void reference_cuda_dq(const struct reference_cuda *r, const struct reference_rows *queries,
                       const double *lse, const double *delta, const struct reference_dbias *dbias,
                       double *dq, double *terms)
{
    attend a = attend_of(r, queries, SIDE_Q);
    a.lse = lse;
    a.delta = delta;
    a.dbias = *dbias;
    a.result = dq;
    a.result_terms = terms;
    pass_run<PASS_DQ>(r, queries, a);
}

void reference_cuda_dkv(const struct reference_cuda *r, const struct reference_rows *keys,
                        const double *lse, const double *delta, double *dk, double *dv,
                        double *terms)
{
    attend a = attend_of(r, keys, SIDE_KV);
    a.lse = lse;
    a.delta = delta;
    a.result = dv;
    pass_run<PASS_DV>(r, keys, a);
    a.result = dk;
    a.result_terms = terms;
    pass_run<PASS_DK>(r, keys, a);
}
