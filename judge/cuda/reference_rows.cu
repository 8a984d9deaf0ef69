// SPDX-License-Identifier: Apache-2.0
// Row-wise parts of the reference: its inputs, delta, sums over the rows of a head, and sums over
// ranks.
#include "judge/cuda/reference_cuda.h"

#include <math.h>

#include "judge/cuda/element.cuh"

extern "C" {
#include "judge/source.h"
#include "judge/totals.h"
}

#define THREADS    256
#define WARP       32
#define BLOCKS_MAX 65535

static int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// ---- inputs -------------------------------------------------------------------------------------

// Dims are padded to a multiple of the columns that a warp reads together (DMMA_GROUP, HMMA_GROUP).
#define DIM_MULTIPLE 32

int reference_cuda_padded(int dim)
{
    return (int)quotient_up(dim, DIM_MULTIPLE) * DIM_MULTIPLE;
}

struct source {
    enum input_tensor tensor;
    enum shard_side side;
};

static const struct source sources[REFERENCE_INPUTS] = {
    {INPUT_Q, SIDE_Q}, {INPUT_K, SIDE_KV}, {INPUT_V, SIDE_KV}, {INPUT_DO, SIDE_Q}};

static int heads_per_key_head(const struct reference_cuda *r, const struct source *source)
{
    return source->side == SIDE_Q ? r->c->heads / r->c->kv_heads : 1;
}

int64_t reference_cuda_elements(const struct reference_cuda *r, int input, int kv_count)
{
    const struct source *source = &sources[input];
    int width = reference_cuda_padded(input_head_dim(r->c, source->tensor));
    if (input == REFERENCE_DO && !r->c->training)
        return 0;
    return r->tokens[source->side] * kv_count * heads_per_key_head(r, source) * width;
}

// Draws heads [head_first, head_first + heads_held) of `heads`. Rows of `dim` elements are padded
// to `width`.
struct drawing {
    struct input_draw draw;
    enum case_dtype dtype;
    const reference_sequence *sequences;
    enum shard_side side;
    int heads, head_first, heads_held, dim, width;
    int64_t seqlen, tokens; // of the case; of all sequences of the batch
    const void *given;      // NULL: drawn
    int64_t given_step;     // rows from one token to the next
    void *to;
};

// Elements per thread: independent Philox blocks.
#define DRAW_WIDTH 8

static __device__ __forceinline__ void drawn_store(float *to, enum case_dtype dtype, float x)
{
    *to = x;
}

static __device__ __forceinline__ void drawn_store(uint16_t *to, enum case_dtype dtype, float x)
{
    *to = dtype == DTYPE_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(x))
                              : __half_as_ushort(__float2half_rn(x));
}

// Row of a token in the whole tensor: in the numbering of drawn elements, or in the given tensor.
static __device__ __forceinline__ int64_t drawing_row(const drawing &d, const reference_sequence &s,
                                                      int sequence, int64_t position)
{
    return d.given ? s.given[d.side] + position * d.given_step : sequence * d.seqlen + position;
}

static __device__ __forceinline__ float drawing_element(const drawing &d, int64_t index)
{
    return d.given ? element_loaded(d.dtype, d.given, index)
                   : element_drawn(d.draw, d.dtype, (uint64_t)index);
}

// Each block fills some rows of one head of a sequence. Grid (rows, heads, sequences).
template <class STORED> __global__ void draw_kernel(const drawing d)
{
    int sequence = blockIdx.z, parts = d.width / DRAW_WIDTH;
    const reference_sequence &s = d.sequences[sequence];
    int64_t count = s.length[d.side] * parts;
    STORED *to = (STORED *)d.to + (blockIdx.y * d.tokens + s.first[d.side]) * d.width;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < count;
         at += (int64_t)gridDim.x * THREADS) {
        int64_t position = at / parts;
        int first = (int)(at % parts) * DRAW_WIDTH;
        int64_t row = drawing_row(d, s, sequence, position) * d.heads + d.head_first + blockIdx.y;
        struct alignas(16) {
            STORED at[DRAW_WIDTH];
        } drawn;
#pragma unroll
        for (int i = 0; i < DRAW_WIDTH; i++) {
            int k = first + i;
            float x = k < d.dim ? drawing_element(d, row * d.dim + k) : 0;
            drawn_store(&drawn.at[i], d.dtype, x);
        }
        *(decltype(drawn) *)(to + position * d.width + first) = drawn;
    }
}

// Maximum number of blocks per head and sequence. With long sequences each block draws several
// pieces.
#define DRAW_BLOCKS_MAX 4096

static void draw(const struct reference_cuda *r, int input)
{
    const struct source *source = &sources[input];
    drawing d = {};
    d.draw = input_draw_of(r->c, source->tensor);
    d.dtype = r->c->dtype;
    d.sequences = r->sequences;
    d.side = source->side;
    d.heads = input_heads(r->c, source->tensor);
    d.head_first = r->kv_first * heads_per_key_head(r, source);
    d.heads_held = r->kv_count * heads_per_key_head(r, source);
    d.dim = input_head_dim(r->c, source->tensor);
    d.width = reference_cuda_padded(d.dim);
    d.seqlen = source->side == SIDE_Q ? r->c->seqlen_q : r->c->seqlen_kv;
    d.tokens = r->tokens[source->side];
    d.given = r->given[input];
    d.given_step = r->c->source ? whole_row_step(r->c->source->c) : 1;
    int64_t blocks = quotient_up(r->length_max[source->side] * d.width, DRAW_WIDTH * THREADS);
    if (blocks == 0)
        return;
    blocks = blocks < DRAW_BLOCKS_MAX ? blocks : DRAW_BLOCKS_MAX;
    dim3 grid((unsigned)blocks, d.heads_held, r->c->batch);
    d.to = r->inputs[input];
    if (d.to)
        draw_kernel<float><<<grid, THREADS, 0, r->queue->stream>>>(d);
    d.to = r->narrow[input];
    if (d.to)
        draw_kernel<uint16_t><<<grid, THREADS, 0, r->queue->stream>>>(d);
    queue_launched(r->queue, "the reference's inputs");
}

void reference_cuda_draw(const struct reference_cuda *r)
{
    for (int input = 0; input < REFERENCE_INPUTS; input++)
        if (reference_cuda_elements(r, input, r->kv_count) > 0)
            draw(r, input);
}

// ---- delta --------------------------------------------------------------------------------------

static __device__ __forceinline__ double warp_sum(double x)
{
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        x += __shfl_xor_sync(~0u, x, lanes);
    return x;
}

// Arguments of delta_kernel (`out`) and run_stats_kernel (`run`).
struct dots {
    const reference_tile *tiles;
    const reference_sequence *sequences;
    enum case_dtype dtype, d_out_dtype;
    const void *d_out;
    reference_results out;
    reference_run run;
    reference_stat *stats;
    reference_stat64 *stats64;
    int heads, head_first, dim, width;
    int64_t tokens, rows;
};

// Calls row(tile, row of the tile, index of the token's dO, head, row of the statistics) for all
// rows of the block's tile and head, one warp per row. Grid (tiles, heads).
template <class ROW> static __device__ __forceinline__ void rows_each(const dots &d, ROW row)
{
    const reference_tile &tile = d.tiles[blockIdx.x];
    int64_t token = d.sequences[tile.sequence].first[SIDE_Q] + tile.position;
    int64_t head = d.head_first + blockIdx.y;
    for (int i = threadIdx.x / WARP; i < tile.count; i += THREADS / WARP)
        row(tile, i, (blockIdx.y * d.tokens + token + i) * d.width, head,
            head * d.rows + tile.row + i);
}

__global__ void delta_kernel(const dots d)
{
    rows_each(d, [&](const reference_tile &, int, int64_t from, int64_t, int64_t row) {
        double exact = 0, twin = 0;
        for (int k = threadIdx.x % WARP; k < d.dim; k += WARP) {
            int64_t at = row * d.width + k;
            double x = element_loaded(d.d_out_dtype, d.d_out, from + k);
            exact += x * (d.out.exact64 ? d.out.exact64[at] : d.out.exact[at]);
            twin += x * element_loaded(d.dtype, d.out.twin, at);
        }
        exact = warp_sum(exact);
        twin = warp_sum(twin);
        if (threadIdx.x % WARP > 0)
            return;
        d.stats[row].delta = (float)exact;
        d.stats[row].delta_twin = (float)twin;
        if (d.stats64)
            d.stats64[row].delta = exact;
    });
}

// A simulated rounding error of x, with fp32 that of its sum: a pseudorandom part in [-1/2, 1/2) of
// a step of the dtype (fp32: 2 steps), different for each place.
static __device__ __forceinline__ float rounding_of(enum case_dtype dtype, float x, int64_t place)
{
    struct philox_block block = {{(uint32_t)place, (uint32_t)(place >> 32), 0, 0}};
    float part = (float)(philox_block(block, 0).word[0] * 0x1p-32 - 0.5);
    float step = dtype == DTYPE_BF16 ? 0x1p-7f : dtype == DTYPE_FP16 ? 0x1p-10f : 0x1p-22f;
    return x == 0 ? 0 : part * step * exp2f(floorf(log2f(fabsf(x))));
}

__global__ void run_stats_kernel(const dots d)
{
    rows_each(d, [&](const reference_tile &tile, int i, int64_t from, int64_t head, int64_t row) {
        double exact = 0, twin = 0;
        int64_t local = tile.local_row + i * d.run.row_step;
        for (int k = threadIdx.x % WARP; k < d.dim; k += WARP) {
            int64_t at = (local * d.heads + head) * d.dim + k;
            float x = element_loaded(d.d_out_dtype, d.d_out, from + k);
            float got = element_loaded(d.dtype, d.run.out, at);
            exact += (double)x * got;
            twin += x * rounding_of(d.dtype, got, at);
        }
        exact = warp_sum(exact);
        twin = warp_sum(twin);
        if (threadIdx.x % WARP > 0)
            return;
        double lse = d.run.lse[head * d.run.local_rows + local], base2 = lse * M_LOG2E;
        reference_stat stat = {(float)base2, 0, (float)exact, (float)(exact + twin)};
        stat.lse_low = isfinite(lse) ? (float)(base2 - stat.lse_high) : 0;
        d.stats[row] = stat;
        if (d.stats64)
            d.stats64[row] = {lse, exact};
    });
}

static dots dots_of(const struct reference_cuda *r, const struct reference_rows *queries,
                    struct reference_stat *stats, struct reference_stat64 *stats64)
{
    dots d = {};
    d.tiles = queries->tiles;
    d.sequences = r->sequences;
    d.dtype = r->c->dtype;
    bool narrow = r->narrow[REFERENCE_DO] != NULL;
    d.d_out_dtype = narrow ? r->c->dtype : DTYPE_FP32;
    d.d_out = narrow ? r->narrow[REFERENCE_DO] : r->inputs[REFERENCE_DO];
    d.stats = stats;
    d.stats64 = stats64;
    d.heads = r->c->heads;
    d.head_first = r->kv_first * (r->c->heads / r->c->kv_heads);
    d.dim = r->c->head_dim_v;
    d.width = reference_cuda_padded(d.dim);
    d.tokens = r->tokens[SIDE_Q];
    d.rows = queries->rows;
    return d;
}

static dim3 dots_grid(const struct reference_cuda *r, const struct reference_rows *queries)
{
    return dim3((unsigned)queries->tile_count, r->kv_count * (r->c->heads / r->c->kv_heads));
}

void reference_cuda_delta(const struct reference_cuda *r, const struct reference_rows *queries,
                          const struct reference_results *out, struct reference_stat *stats,
                          struct reference_stat64 *stats64)
{
    dots d = dots_of(r, queries, stats, stats64);
    d.out = *out;
    if (queries->tile_count == 0)
        return;
    delta_kernel<<<dots_grid(r, queries), THREADS, 0, r->queue->stream>>>(d);
    queue_launched(r->queue, "the reference's delta");
}

void reference_cuda_run_stats(const struct reference_cuda *r, const struct reference_rows *queries,
                              const struct reference_run *run, struct reference_stat *stats,
                              struct reference_stat64 *stats64)
{
    dots d = dots_of(r, queries, stats, stats64);
    d.run = *run;
    if (queries->tile_count == 0)
        return;
    run_stats_kernel<<<dots_grid(r, queries), THREADS, 0, r->queue->stream>>>(d);
    queue_launched(r->queue, "the statistics of the run");
}

// ---- sums over the rows of a head ---------------------------------------------------------------

static __device__ __forceinline__ double joined(int number, double a, double b)
{
    return number == TOTALS_MAX_LOGIT ? fmax(a, b) : a + b;
}

// Minus the weight of the sink in the softmax.
static __device__ __forceinline__ double sink_weight(double sink, double lse)
{
    return lse == -INFINITY ? 0 : -exp(sink - lse);
}

static __device__ __forceinline__ double lse_of(const reference_stat &stat)
{
    return ((double)stat.lse_high + stat.lse_low) * M_LN2;
}

static __device__ __forceinline__ void sink_add(const reference_head_rows &h, double sink,
                                                double products, int64_t at,
                                                double own[TOTALS_NUMBERS])
{
    double lse = h.stats64 ? h.stats64[at].lse : lse_of(h.stats[at]);
    double delta = h.stats64 ? h.stats64[at].delta : h.stats[at].delta;
    double weight = sink_weight(sink, lse), term = weight * delta;
    double off = weight * (h.stats[at].delta_twin - delta);
    own[TOTALS_DSINK] += term;
    own[TOTALS_SINK_TERMS] += rules_sink_square(-weight, delta, products);
    own[TOTALS_SINK_TWIN] += off * off;
}

// One block per head. Each thread reduces its own rows, then the block reduces its threads in a
// fixed order.
__global__ void heads_kernel(const reference_head_rows h, const float *sinks, double products,
                             int heads, double *to)
{
    __shared__ double all[TOTALS_NUMBERS][THREADS];
    int head = blockIdx.x;
    double own[TOTALS_NUMBERS] = {-INFINITY};
    for (int64_t row = threadIdx.x; row < h.rows; row += THREADS) {
        int64_t at = head * h.rows + row;
        double max = h.max ? h.max[at] : -INFINITY, terms = h.bias_terms ? h.bias_terms[at] : 0;
        own[TOTALS_MAX_LOGIT] = fmax(own[TOTALS_MAX_LOGIT], max);
        own[TOTALS_BIAS_TERMS] += terms * terms;
        if (!h.judged)
            continue;
        double off = sink_weight(sinks[head], lse_of(h.judged[at])) *
                     ((double)h.judged[at].delta_twin - h.judged[at].delta);
        own[TOTALS_SINK_TWIN] += off * off;
    }
    for (int64_t row = threadIdx.x; h.stats && row < h.stats_rows; row += THREADS)
        sink_add(h, sinks[head], products, head * h.stats_rows + row, own);
    for (int i = 0; i < TOTALS_NUMBERS; i++)
        all[i][threadIdx.x] = own[i];
    for (int threads = THREADS / 2; threads > 0; threads /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < threads)
            for (int i = 0; i < TOTALS_NUMBERS; i++)
                all[i][threadIdx.x] = joined(i, all[i][threadIdx.x], all[i][threadIdx.x + threads]);
    }
    if (threadIdx.x == 0)
        for (int i = 0; i < TOTALS_NUMBERS; i++)
            to[i * heads + head] = all[i][0];
}

void reference_cuda_heads(const struct reference_cuda *r, const struct reference_head_rows *rows,
                          double *heads)
{
    heads_kernel<<<r->c->heads, THREADS, 0, r->queue->stream>>>(
        *rows, r->sinks, rules_product_squares(r->c), r->c->heads, heads);
    queue_launched(r->queue, "the reference's sums");
}

// ---- data of other ranks ------------------------------------------------------------------------

// Grid (pieces, heads): each block copies the statistics of one piece and head.
__global__ void gather_kernel(const reference_piece *pieces, int64_t tokens, uint4 *stats)
{
    const reference_piece p = pieces[blockIdx.x];
    const uint4 *from = (const uint4 *)p.from + blockIdx.y * p.rows + p.row;
    uint4 *to = stats + blockIdx.y * tokens + p.token;
    for (int64_t i = threadIdx.x; i < p.count; i += THREADS)
        to[i] = from[i];
}

void reference_cuda_gather(const struct reference_cuda *r, const struct reference_piece *pieces,
                           int64_t count, void *stats)
{
    static_assert(sizeof(reference_stat) == sizeof(uint4), "what is gathered");
    static_assert(sizeof(reference_stat64) == sizeof(uint4), "what is gathered");
    if (count == 0)
        return;
    gather_kernel<<<dim3((unsigned)count, r->c->heads), THREADS, 0, r->queue->stream>>>(
        pieces, r->tokens[SIDE_Q], (uint4 *)stats);
    queue_launched(r->queue, "the reference's LSE");
}

template <class NUMBER>
__global__ void add_parts_kernel(const NUMBER *parts, int count, int skipped, int64_t length,
                                 NUMBER *to)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < length;
         i += (int64_t)gridDim.x * THREADS) {
        NUMBER sum = to[i];
        for (int part = 0; part < count; part++)
            if (part != skipped)
                sum += parts[part * length + i];
        to[i] = sum;
    }
}

template <class NUMBER>
static void add_parts(struct cuda_queue *queue, const NUMBER *parts, int count, int skipped,
                      int64_t length, NUMBER *destination)
{
    int64_t blocks = quotient_up(length, THREADS);
    if (blocks == 0)
        return;
    blocks = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
    add_parts_kernel<<<(unsigned)blocks, THREADS, 0, queue->stream>>>(parts, count, skipped, length,
                                                                      destination);
    queue_launched(queue, "the reference's gradient of the bias");
}

void reference_cuda_add_parts(struct cuda_queue *queue, const double *parts, int count, int skipped,
                              int64_t length, double *destination)
{
    add_parts(queue, parts, count, skipped, length, destination);
}

void reference_cuda_add_twin_parts(struct cuda_queue *queue, const float *parts, int count,
                                   int skipped, int64_t length, float *destination)
{
    add_parts(queue, parts, count, skipped, length, destination);
}
