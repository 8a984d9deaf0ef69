// SPDX-License-Identifier: Apache-2.0
// Forward for fp32, computed in fp32 throughout. Tiles and online softmax are as for the 16-bit
// types, but products are fused multiply-adds, without tensor cores.
//
// 256 threads in groups of 16 share 64 rows. Thread `lane` of group `group` holds rows 4 group ..
// 4 group + 3: of their scores, keys lane and lane + 16; of their output, columns 4 lane + 64 n ..
// 4 lane + 64 n + 3. K and V take turns in one buffer.
#include <math_constants.h>

#include "kernels/cuda/forward_work.h"
#include "kernels/cuda/mma.cuh"

#define THREADS   256
#define ROWS      64
#define KEYS      32
#define LANES     16
#define ROWS_EACH 4
#define KEYS_EACH 2
// Floats between rows in shared memory: 16 lanes reading 16 bytes of different rows use all banks.
#define PADDING   4

static const float LOG2_E = 1.4426950408889634f;
static const float LN_2 = 0.6931471805599453f;

// Shared memory of a thread block, and sizes in floats.
struct buffers {
    float *q, *kv, *weights; // [ROWS][stride], [KEYS][stride], [ROWS][KEYS + PADDING]
    int stride, q_width;     // q_width: d_qk rounded up to 4
};

template <int DV> struct state {
    float out[ROWS_EACH][DV / 16];        // columns of this thread
    float max[ROWS_EACH], sum[ROWS_EACH]; // of the whole row; max in base 2
};

// Copies up to `rows` rows of d elements, `stride` elements apart, to shared memory, and fills them
// up with zeros to `all` rows of `width` elements. Called by the whole block.
static __device__ void load_rows(float *to, int to_stride, const float *from, int64_t stride,
                                 int rows, int all, int d, int width)
{
    for (int i = (int)threadIdx.x; i < all * width; i += THREADS) {
        int row = i / width, column = i % width;
        to[row * to_stride + column] = row < rows && column < d ? from[row * stride + column] : 0;
    }
}

static __device__ void scores_compute(float scores[ROWS_EACH][KEYS_EACH], const struct buffers &b,
                                      int group, int lane)
{
    for (int i = 0; i < ROWS_EACH; i++)
        for (int j = 0; j < KEYS_EACH; j++)
            scores[i][j] = 0;
    for (int c = 0; c < b.q_width; c += 4) {
        float4 k[KEYS_EACH];
#pragma unroll
        for (int j = 0; j < KEYS_EACH; j++)
            k[j] = *(const float4 *)&b.kv[(lane + j * LANES) * b.stride + c];
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++) {
            float4 q = *(const float4 *)&b.q[(group * ROWS_EACH + i) * b.stride + c];
#pragma unroll
            for (int j = 0; j < KEYS_EACH; j++)
                scores[i][j] =
                    fmaf(q.x, k[j].x,
                         fmaf(q.y, k[j].y, fmaf(q.z, k[j].z, fmaf(q.w, k[j].w, scores[i][j]))));
        }
    }
}

// Logit in base 2 of a product of Q and K. `bias` may be NULL.
static __device__ float logit(const struct forward_work &work, float product, const float *bias)
{
    float x = product * work.factor;
    if (work.cap != 0)
        x = work.cap * tanhf(x);
    return bias ? x + *bias * LOG2_E : x;
}

// Turns products into logits; those of invisible keys become -inf.
static __device__ void scores_logits(float scores[ROWS_EACH][KEYS_EACH],
                                     const struct forward_work &work,
                                     const struct work_fragment &fragment, int key, int head,
                                     int rows, int group, int lane)
{
    const float *head_bias =
        (const float *)work.bias + head * work.bias_head_stride + fragment.bias;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        int row = group * ROWS_EACH + i;
#pragma unroll
        for (int j = 0; j < KEYS_EACH; j++) {
            int column = key + lane + j * LANES;
            bool visible = row < rows && column >= fragment.low + row &&
                           column < min(fragment.high + row, fragment.keys);
            const float *bias = head_bias + row * work.bias_query_stride + column;
            scores[i][j] =
                visible ? logit(work, scores[i][j], work.bias ? bias : NULL) : -CUDART_INF_F;
        }
    }
}

static __device__ float group_max(float x)
{
    for (int step = LANES / 2; step > 0; step >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

static __device__ float group_sum(float x)
{
    for (int step = LANES / 2; step > 0; step >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

// Online softmax of a block: writes the weights to shared memory, rescales `sum` and `out`.
template <int DV>
static __device__ void scores_softmax(struct state<DV> &state, float scores[ROWS_EACH][KEYS_EACH],
                                      const struct buffers &b, int group, int lane)
{
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        float before = state.max[i];
        float after = fmaxf(before, group_max(fmaxf(scores[i][0], scores[i][1])));
        float shift = after == -CUDART_INF_F ? 0 : after;
        float shrink = before == -CUDART_INF_F ? 0 : exp2f(before - shift);
        float *weights = b.weights + (group * ROWS_EACH + i) * (KEYS + PADDING);
        float sum = 0;
#pragma unroll
        for (int j = 0; j < KEYS_EACH; j++) {
            float p = exp2f(scores[i][j] - shift);
            weights[lane + j * LANES] = p;
            sum += p;
        }
        state.max[i] = after;
        state.sum[i] = state.sum[i] * shrink + group_sum(sum);
#pragma unroll
        for (int n = 0; n < DV / 16; n++)
            state.out[i][n] *= shrink;
    }
}

template <int DV>
static __device__ void out_accumulate(struct state<DV> &state, const struct buffers &b, int group,
                                      int lane)
{
    for (int key = 0; key < KEYS; key++) {
        float p[ROWS_EACH];
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++)
            p[i] = b.weights[(group * ROWS_EACH + i) * (KEYS + PADDING) + key];
#pragma unroll
        for (int n = 0; n < DV / 64; n++) {
            float4 v = *(const float4 *)&b.kv[key * b.stride + n * 64 + lane * 4];
#pragma unroll
            for (int i = 0; i < ROWS_EACH; i++) {
                float *out = &state.out[i][4 * n];
                out[0] = fmaf(p[i], v.x, out[0]);
                out[1] = fmaf(p[i], v.y, out[1]);
                out[2] = fmaf(p[i], v.z, out[2]);
                out[3] = fmaf(p[i], v.w, out[3]);
            }
        }
    }
}

template <int DV>
static __device__ void state_merge(const struct state<DV> &state, const struct forward_work &work,
                                   const struct work_tile &tile, int head, int group, int lane)
{
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        int row = group * ROWS_EACH + i;
        bool some = row < tile.rows && state.sum[i] != 0;
        int64_t q_row = tile.q_row + row * work.row_step;
        float *running = work.lse + head * work.q_rows + q_row;
        float before = some ? *running : 0;
        __syncwarp(); // all 16 lanes have read *running before one of them writes it
        if (!some)
            continue;
        float lse = (state.max[i] + log2f(state.sum[i])) * LN_2;
        float most = fmaxf(before, lse);
        float keep = expf(before - most), take = expf(lse - most), both = keep + take;
        if (lane == 0)
            *running = most + logf(both);
        float *o = work.o + (q_row * work.heads + head) * work.d_v;
        keep /= both;
        take /= both * state.sum[i];
#pragma unroll
        for (int n = 0; n < DV / 16; n++) {
            int column = n / 4 * 64 + lane * 4 + n % 4;
            if (column < work.d_v)
                o[column] = (keep != 0 ? keep * o[column] : 0) + take * state.out[i][n];
        }
    }
}

static __device__ float scores_most(const float scores[ROWS_EACH][KEYS_EACH], float most)
{
    for (int i = 0; i < ROWS_EACH; i++)
        for (int j = 0; j < KEYS_EACH; j++)
            most = fmaxf(most, scores[i][j]);
    return most;
}

// Computes keys [key, key + KEYS) of a fragment. Returns the largest of `most` and this thread's
// logits. Called by the whole block.
template <int DV>
static __device__ float block_work(struct state<DV> &state, const struct forward_work &work,
                                   const struct work_tile &tile, const struct forward_place &place,
                                   const struct work_fragment &fragment, int key,
                                   const struct buffers &b, float most)
{
    int group = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    int64_t vector = (fragment.kv_row + key * work.row_step) * work.kv_heads + place.kv_head;
    int64_t step = work.row_step * work.kv_heads;
    int keys = fragment.keys - key;
    float scores[ROWS_EACH][KEYS_EACH];
    __syncthreads(); // V of the block before is no longer read
    load_rows(b.kv, b.stride, (const float *)work.k + vector * work.d_qk, step * work.d_qk, keys,
              KEYS, work.d_qk, b.q_width);
    __syncthreads();
    scores_compute(scores, b, group, lane);
    scores_logits(scores, work, fragment, key, place.head, tile.rows, group, lane);
    scores_softmax(state, scores, b, group, lane);
    __syncthreads(); // K is no longer read
    load_rows(b.kv, b.stride, (const float *)work.v + vector * work.d_v, step * work.d_v, keys,
              KEYS, work.d_v, DV);
    __syncthreads();
    out_accumulate(state, b, group, lane);
    return scores_most(scores, most);
}

// Stride of the rows in shared memory, in floats.
static constexpr __host__ __device__ int row_stride(int d_qk, int dv)
{
    return ((d_qk + 3) / 4 * 4 > dv ? (d_qk + 3) / 4 * 4 : dv) + PADDING;
}

static constexpr int shared_bytes(int d_qk, int dv)
{
    return ((ROWS + KEYS) * row_stride(d_qk, dv) + ROWS * (KEYS + PADDING)) * (int)sizeof(float);
}

template <int DV>
static __global__ void __launch_bounds__(THREADS, 1)
    forward_kernel(const __grid_constant__ struct forward_work work)
{
    extern __shared__ __align__(16) float shared[];
    struct buffers b;
    b.stride = row_stride(work.d_qk, DV);
    b.q_width = (work.d_qk + 3) / 4 * 4;
    b.q = shared;
    b.kv = b.q + ROWS * b.stride;
    b.weights = b.kv + KEYS * b.stride;
    struct forward_place place = forward_place(work);
    struct work_tile tile = work.tiles[place.tile];
    int64_t vector = tile.q_row * work.heads + place.head;
    load_rows(b.q, b.stride, (const float *)work.q + vector * work.d_qk,
              work.row_step * work.heads * work.d_qk, tile.rows, ROWS, work.d_qk, b.q_width);
    struct state<DV> state;
    for (int i = 0; i < ROWS_EACH; i++) {
        state.max[i] = -CUDART_INF_F;
        state.sum[i] = 0;
        for (int n = 0; n < DV / 16; n++)
            state.out[i][n] = 0;
    }
    float most = -CUDART_INF_F;
    for (int f = tile.fragment; f < tile.fragment + tile.fragment_count; f++) {
        struct work_fragment fragment = work.fragments[f];
        for (int key = 0; key < fragment.keys; key += KEYS)
            most = block_work(state, work, tile, place, fragment, key, b, most);
    }
    state_merge(state, work, tile, place.head, (int)threadIdx.x / LANES, (int)threadIdx.x % LANES);
    most = warp_max(most);
    if (work.max_logit && threadIdx.x % WARP_LANES == 0 && most > -CUDART_INF_F)
        atomic_max(work.max_logit + place.head, most * LN_2);
}

template <int DV>
static cudaError_t launch(const struct forward_work &work, enum case_dtype, bool,
                          cudaStream_t stream)
{
    int bytes = shared_bytes(work.d_qk, DV);
    cudaError_t error = cudaFuncSetAttribute(forward_kernel<DV>,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess)
        return error;
    unsigned blocks = (unsigned)work.tile_count * (unsigned)work.heads;
    forward_kernel<DV><<<blocks, THREADS, (size_t)bytes, stream>>>(work);
    return cudaGetLastError();
}

#define INSTANCE(d)                                                                                \
    {                                                                                              \
        d, d, {ROWS, KEYS}, shared_bytes(d, d), FORWARD_SECTION_BYTES, FORWARD_SECTION_BYTES,      \
            launch<d>                                                                              \
    }
const struct forward_instance forward_fp32_64 = INSTANCE(64);
const struct forward_instance forward_fp32_128 = INSTANCE(128);
const struct forward_instance forward_fp32_256 = INSTANCE(256);
