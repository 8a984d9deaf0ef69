// SPDX-License-Identifier: Apache-2.0
// The parts of the reference that look at one row at a time, and its inputs.
#include "kernels/cuda/reference_cuda.h"

#include <math.h>

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/internal.h"

#define THREADS    256
#define WARP       32
#define BLOCKS_MAX 65535

static int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// ---- inputs -------------------------------------------------------------------------------------

// dims are padded so that a row is a whole number of the groups that a warp reads.
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

struct drawing {
    struct input_draw draw;
    enum case_dtype dtype;
    const reference_sequence *sequences;
    enum shard_side side;
    int heads, head_first, heads_held, dim, width;
    int64_t seqlen, tokens;
    float *to;
};

// One block draws some rows of one head of a sequence: grid (rows, heads, sequences).
__global__ void draw_kernel(const drawing d)
{
    int sequence = blockIdx.z;
    const reference_sequence &s = d.sequences[sequence];
    int64_t elements = s.length[d.side] * d.width;
    float *to = d.to + (blockIdx.y * d.tokens + s.first[d.side]) * d.width;
    for (int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x; at < elements;
         at += (int64_t)gridDim.x * THREADS) {
        int64_t position = at / d.width;
        int i = (int)(at % d.width);
        int64_t row = (sequence * d.seqlen + position) * d.heads + d.head_first + blockIdx.y;
        to[at] = i < d.dim ? element_drawn(d.draw, d.dtype, (uint64_t)(row * d.dim + i)) : 0;
    }
}

// Blocks that go through one head of a sequence, each several times where it is very long.
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
    d.to = r->inputs[input];
    int64_t blocks = quotient_up(r->length_max[source->side] * d.width, THREADS);
    if (blocks == 0)
        return;
    blocks = blocks < DRAW_BLOCKS_MAX ? blocks : DRAW_BLOCKS_MAX;
    draw_kernel<<<dim3((unsigned)blocks, d.heads_held, r->c->batch), THREADS, 0,
                  r->backend->stream>>>(d);
    cuda_launched(r->backend, "the reference's inputs");
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

struct dots {
    const reference_tile *tiles;
    const reference_sequence *sequences;
    const float *d_out;
    const double *out;
    double *delta;
    int head_first, dim, width;
    int64_t tokens, rows;
};

// One block for a tile and head: grid (tiles, heads). One warp for a row.
__global__ void delta_kernel(const dots d)
{
    const reference_tile &tile = d.tiles[blockIdx.x];
    int64_t token = d.sequences[tile.sequence].first[SIDE_Q] + tile.position;
    int head = d.head_first + blockIdx.y;
    for (int i = threadIdx.x / WARP; i < tile.count; i += THREADS / WARP) {
        const float *x = d.d_out + (blockIdx.y * d.tokens + token + i) * d.width;
        int64_t row = head * d.rows + tile.row + i;
        double sum = 0;
        for (int k = threadIdx.x % WARP; k < d.dim; k += WARP)
            sum += x[k] * d.out[row * d.width + k];
        sum = warp_sum(sum);
        if (threadIdx.x % WARP == 0)
            d.delta[row] = sum;
    }
}

void reference_cuda_delta(const struct reference_cuda *r, const struct reference_rows *queries,
                          const double *out, double *delta)
{
    int group = r->c->heads / r->c->kv_heads;
    dots d = {};
    d.tiles = queries->tiles;
    d.sequences = r->sequences;
    d.d_out = r->inputs[REFERENCE_DO];
    d.out = out;
    d.delta = delta;
    d.head_first = r->kv_first * group;
    d.dim = r->c->head_dim_v;
    d.width = reference_cuda_padded(d.dim);
    d.tokens = r->tokens[SIDE_Q];
    d.rows = queries->rows;
    if (queries->tile_count == 0)
        return;
    delta_kernel<<<dim3((unsigned)queries->tile_count, r->kv_count * group), THREADS, 0,
                   r->backend->stream>>>(d);
    cuda_launched(r->backend, "the reference's delta");
}

// ---- sums over the rows of a head ---------------------------------------------------------------

enum { HEAD_MAX, HEAD_DSINK, HEAD_SQUARES, HEAD_NUMBERS };

static __device__ __forceinline__ double joined(int number, double a, double b)
{
    return number == HEAD_MAX ? fmax(a, b) : a + b;
}

// One block for a head. Each thread sums up rows of its own, then the threads in a fixed order.
__global__ void heads_kernel(int64_t rows, const double *max, const double *lse,
                             const double *delta, const float *sinks, int heads, double *to)
{
    __shared__ double all[HEAD_NUMBERS][THREADS];
    int head = blockIdx.x;
    double own[HEAD_NUMBERS] = {-INFINITY, 0, 0};
    for (int64_t row = threadIdx.x; row < rows; row += THREADS) {
        int64_t at = head * rows + row;
        if (max)
            own[HEAD_MAX] = fmax(own[HEAD_MAX], max[at]);
        if (!lse || lse[at] == -INFINITY)
            continue;
        double term = -exp(sinks[head] - lse[at]) * delta[at];
        own[HEAD_DSINK] += term;
        own[HEAD_SQUARES] += term * term;
    }
    for (int i = 0; i < HEAD_NUMBERS; i++)
        all[i][threadIdx.x] = own[i];
    for (int threads = THREADS / 2; threads > 0; threads /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < threads)
            for (int i = 0; i < HEAD_NUMBERS; i++)
                all[i][threadIdx.x] = joined(i, all[i][threadIdx.x], all[i][threadIdx.x + threads]);
    }
    if (threadIdx.x == 0)
        for (int i = 0; i < HEAD_NUMBERS; i++)
            to[i * heads + head] = all[i][0];
}

void reference_cuda_heads(const struct reference_cuda *r, int64_t rows, const double *max,
                          const double *lse, const double *delta, double *heads)
{
    heads_kernel<<<r->c->heads, THREADS, 0, r->backend->stream>>>(rows, max, lse, delta, r->sinks,
                                                                  r->c->heads, heads);
    cuda_launched(r->backend, "the reference's sums");
}

// ---- what comes from other ranks ----------------------------------------------------------------

// Grid (pieces, heads, 1).
__global__ void gather_kernel(const reference_piece *pieces, int64_t tokens, double *lse,
                              double *delta)
{
    const reference_piece p = pieces[blockIdx.x];
    int head = blockIdx.y, heads = gridDim.y;
    for (int64_t i = threadIdx.x; i < p.count; i += THREADS) {
        lse[head * tokens + p.token + i] = p.from[head * p.rows + p.row + i];
        delta[head * tokens + p.token + i] = p.from[(heads + head) * p.rows + p.row + i];
    }
}

void reference_cuda_gather(const struct reference_cuda *r, const struct reference_piece *pieces,
                           int64_t count, double *lse, double *delta)
{
    if (count == 0)
        return;
    gather_kernel<<<dim3((unsigned)count, r->c->heads), THREADS, 0, r->backend->stream>>>(
        pieces, r->tokens[SIDE_Q], lse, delta);
    cuda_launched(r->backend, "the reference's LSE");
}

__global__ void add_parts_kernel(const double *parts, int count, int skipped, int64_t length,
                                 double *to)
{
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < length;
         i += (int64_t)gridDim.x * THREADS) {
        double sum = to[i];
        for (int part = 0; part < count; part++)
            if (part != skipped)
                sum += parts[part * length + i];
        to[i] = sum;
    }
}

void reference_cuda_add_parts(struct attention_backend *backend, const double *parts, int count,
                              int skipped, int64_t length, double *destination)
{
    int64_t blocks = quotient_up(length, THREADS);
    if (blocks == 0)
        return;
    blocks = blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX;
    add_parts_kernel<<<(unsigned)blocks, THREADS, 0, backend->stream>>>(parts, count, skipped,
                                                                        length, destination);
    cuda_launched(backend, "the reference's gradient of the bias");
}
