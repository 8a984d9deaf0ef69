// SPDX-License-Identifier: Apache-2.0
// Forward on sm_90a: row maxima, softcap and bias.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_FEATURES_CUH
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_FEATURES_CUH

#include "kernels/cuda/sm90_bias.cuh"
#include "kernels/cuda/sm90_cap.cuh"
#include "kernels/cuda/sm90_forward_load.cuh"

static const float LOG2_E = 1.4426950408889634f;

// ---- maxima -------------------------------------------------------------------------------------

// Maximum of the thread's scores in row `half`, compared as signed integers. These are the bits of
// the largest score if any score has a clear sign bit, otherwise of the smallest score.
template <class S>
__device__ __forceinline__ int bits_most(const float (&scores)[S::N / 2], int half)
{
    int most = max(__float_as_int(scores[2 * half]), __float_as_int(scores[2 * half + 1]));
#pragma unroll
    for (int n = 1; n < S::N / 8; n++)
        most = __vimax3_s32(most, __float_as_int(scores[4 * n + 2 * half]),
                            __float_as_int(scores[4 * n + 2 * half + 1]));
    return most;
}

// ---- softcap ------------------------------------------------------------------------------------

// Logit in base 2 of a score, minus `less`, without softcap: factor * score.
struct logit_linear {
    static const bool SERIES = false;
    float factor;

    __device__ __forceinline__ float operator()(float score, float less = 0) const
    {
        return fmaf(score, factor, -less);
    }
};

// The same with softcap: score times a series in score^2. Valid within the reach of the series.
template <int TERMS> struct logit_series {
    static const bool SERIES = true;
    const float (&terms)[TERMS];

    __device__ __forceinline__ float operator()(float score, float less = 0) const
    {
        return fmaf(score, series_of(terms, score * score), -less);
    }
};

// Largest magnitude of the thread's scores; NaN if one of them is NaN.
template <class S> __device__ __forceinline__ float scores_reach(const float (&scores)[S::N / 2])
{
    unsigned below[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < S::N / 2; i += 2)
        below[i / 2 % 2] = __vimax3_u32(below[i / 2 % 2], __float_as_uint(scores[i]),
                                        __float_as_uint(scores[i + 1]));
    int above = max(bits_most<S>(scores, 0), bits_most<S>(scores, 1));
    return magnitude_of(max(below[0], below[1]), above);
}

// Replaces products q * k by capped logits in base 2: cap * tanh(factor * score). Called by whole
// warps.
template <class S>
__device__ __forceinline__ void scores_cap(float (&scores)[S::N / 2], float factor, float cap)
{
    if (cap_reach_of(scores, factor) != CAP_FAR) {
#pragma unroll
        for (int i = 0; i < S::N / 2; i++)
            scores[i] = cap * cap_tanh<CAP_NEAR>(scores[i] * factor);
    } else {
        float slope;
#pragma unroll
        for (int i = 0; i < S::N / 2; i++)
            scores[i] = cap * cap_tanh_far(scores[i] * factor, &slope);
    }
}

// ---- bias, in shared memory ---------------------------------------------------------------------
// A block of bias lies in rows of N elements or, with BIAS_BOXES, in panels of 64 columns as TMA
// boxes do. The 16-byte chunks of a row are swizzled: eight rows of the same columns lie in
// different banks.

// Swizzle of a row: the number that the byte offset of a chunk is XORed with.
template <class S> __device__ __forceinline__ uint32_t bias_turn(int row)
{
    const int chunks = S::BIAS_ROW / CHUNK_BYTES;
    int turn = chunks % 8 == 0   ? row & 7
               : chunks % 4 == 0 ? row >> 1 & 3
               : chunks % 2 == 0 ? row >> 2 & 1
                                 : 0;
    return (uint32_t)turn * CHUNK_BYTES;
}

// Byte offset of the group of eight chunks that has chunk n, from the row's start in panel 0.
template <class S> __device__ __forceinline__ uint32_t bias_columns(int n)
{
    return S::BIAS_BOXES ? n / 8 * S::ROWS * SM90_PANEL_ROW_BYTES : (n & ~7) * CHUNK_BYTES;
}

// Byte offset of a chunk of a row in a block of bias, swizzled.
template <class S> __device__ __forceinline__ uint32_t bias_chunk_place(int row, int chunk)
{
    const int pitch = S::BIAS_BOXES ? SM90_PANEL_ROW_BYTES : S::BIAS_ROW;
    return row * pitch + bias_columns<S>(chunk) + (chunk % 8 * CHUNK_BYTES ^ bias_turn<S>(row));
}

// The lower and the upper element of a packed pair.
template <typename T> __device__ __forceinline__ float pair_low(uint32_t pair);
template <typename T> __device__ __forceinline__ float pair_high(uint32_t pair);
template <> __device__ __forceinline__ float pair_low<__nv_bfloat16>(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}
template <> __device__ __forceinline__ float pair_high<__nv_bfloat16>(uint32_t pair)
{
    return __uint_as_float(pair & 0xffff0000);
}
template <> __device__ __forceinline__ float pair_low<__half>(uint32_t pair)
{
    return __half2float(__ushort_as_half((unsigned short)pair));
}
template <> __device__ __forceinline__ float pair_high<__half>(uint32_t pair)
{
    return __half2float(__ushort_as_half((unsigned short)(pair >> 16)));
}

// Adds factor * bias to the thread's scores. `bias`: shared address of the block; `row`: the
// thread's first row in the tile. Called by whole warps. Each ldmatrix loads two chunks of the
// warp's 16 rows as four 8 x 8 matrices; each lane supplies the address of one row of one matrix.
template <class S>
__device__ __forceinline__ void scores_bias(float (&scores)[S::N / 2], uint32_t bias, int row,
                                            float factor)
{
    const int pitch = S::BIAS_BOXES ? SM90_PANEL_ROW_BYTES : S::BIAS_ROW;
    const int lane = (int)threadIdx.x % WARP_LANES;
    row += lane % 16 - lane / 4;
    const uint32_t at = bias + row * pitch, turn = bias_turn<S>(row) ^ (lane / 16 * CHUNK_BYTES);
#pragma unroll
    for (int n = 0; n < S::N / 8; n += 2) {
        uint32_t pairs[4];
        load_fragment(pairs, at + bias_columns<S>(n) + ((n & 7) * CHUNK_BYTES ^ turn));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float *to = &scores[4 * n + 2 * i];
            to[0] = fmaf(pair_low<typename S::T>(pairs[i]), factor, to[0]);
            to[1] = fmaf(pair_high<typename S::T>(pairs[i]), factor, to[1]);
        }
    }
}

// ---- bias, loading ------------------------------------------------------------------------------

#define BIAS_THREADS (SM90_BIAS_WARPS * WARP_LANES)

// Copies the bias of keys key .. key + N - 1 to shared memory. `from`: bias of row 0 and key 0.
// Rows beyond the tile, and keys invisible to their row, get 0: the bias need not exist there.
// Called by all bias warps. Each thread copies one chunk of every at_once-th row.
template <class S>
__device__ __forceinline__ void
bias_block_load(const struct forward_work &work, const struct work_fragment &fragment,
                const typename S::T *from, int rows, int key, uint32_t to)
{
    const int chunks = S::BIAS_ROW / CHUNK_BYTES, at_once = BIAS_THREADS / chunks;
    const int thread = (int)threadIdx.x % GROUP_THREADS - WARP_LANES, chunk = thread % chunks;
    const int first_row = thread / chunks, first = key + chunk * CHUNK_ELEMENTS;
    if (first_row >= at_once)
        return;
    const int64_t stride = work.bias_query_stride;
    from += first_row * stride + first;
    bool whole = rows == S::ROWS && fragment.low + S::ROWS - 1 <= key &&
                 key + S::N <= min(fragment.high, fragment.keys) &&
                 ((uintptr_t)from | (uintptr_t)stride * 2) % CHUNK_BYTES == 0;
    if (whole) {
#pragma unroll 4
        for (int row = first_row; row < S::ROWS; row += at_once, from += at_once * stride)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                             to + bias_chunk_place<S>(row, chunk)),
                         "l"(from)
                         : "memory");
        return;
    }
#pragma unroll 1
    for (int row = first_row; row < S::ROWS; row += at_once, from += at_once * stride) {
        int begin = fragment.low + row - first;
        int end = row < rows ? min(fragment.high + row, fragment.keys) - first : 0;
        bias_chunk_load(to + bias_chunk_place<S>(row, chunk), from, begin, end);
    }
}

// Position of a fragment's bias in the tensor map.
struct bias_box {
    int column, row; // of the tile's row 0 and key 0
    bool mapped;     // TMA boxes may begin there
};

// `at`: offset of the fragment's bias from work.bias, in elements.
static __device__ __forceinline__ struct bias_box bias_box_of(const struct sm90_forward &args,
                                                              int64_t at)
{
    if (!args.bias_mapped)
        return {0, 0, false};
    const int64_t stride = args.work.bias_query_stride, row = at / stride;
    const int column = (int)(at - row * stride);
    return {column, (int)row, at >= 0 && row < SM90_MATRIX_MOST && column % CHUNK_ELEMENTS == 0};
}

// True if every row of the tile sees every key of the block, and TMA boxes can copy its bias.
template <class S>
__device__ __forceinline__ bool bias_is_boxes(const struct sm90_forward &args,
                                              const struct work_fragment &fragment,
                                              const struct bias_box &box, int rows, int key)
{
    return S::BIAS_BOXES && box.mapped && rows == S::ROWS && fragment.low + S::ROWS - 1 <= key &&
           key + S::N <= min(fragment.high, fragment.keys) &&
           box.column + key + S::N <= args.work.bias_query_stride;
}

// Copies the bias of one block by TMA boxes. Called by all bias warps. One lane of each warp
// arrives at `full` for the whole warp. Every warp must arrive: otherwise a late warp could mistake
// a later round of the stage for this one.
template <class S>
__device__ __forceinline__ void bias_boxes_load(const struct sm90_forward &args,
                                                const struct bias_box &box, int key, uint32_t to,
                                                uint32_t full)
{
    const int thread = (int)threadIdx.x % GROUP_THREADS - WARP_LANES;
    __syncwarp();
    if (thread % WARP_LANES != 0)
        return;
    if (thread != 0) {
        barrier_arrive_times(full, 2 * WARP_LANES);
        return;
    }
    shared_fence(); // orders the boxes after copies by threads into this stage
    barrier_expect(full, S::BIAS_BYTES);
    barrier_arrive_times(full, 2 * WARP_LANES - 1);
    const uint64_t policy = l2_policy(args.work.bias_once);
#pragma unroll
    for (int panel = 0; panel < S::N / SM90_PANEL_COLUMNS; panel++)
        tensor_load_2d(to + panel * S::ROWS * SM90_PANEL_ROW_BYTES, &args.bias,
                       box.column + key + panel * SM90_PANEL_COLUMNS, box.row, policy, full);
}

// Loads the bias of a fragment, block by block. Called by all bias warps. Waits for BIAS_EMPTY of
// each stage and signals BIAS_FULL.
template <class S>
__device__ __forceinline__ void bias_fragment_load(const struct sm90_forward &args, uint32_t shared,
                                                   const struct work_fragment &fragment, int head,
                                                   int rows,
                                                   struct sm90_ring<S::BIAS_STAGES> *stage)
{
    const struct forward_work &work = args.work;
    const int64_t at = head * work.bias_head_stride + fragment.bias;
    const struct bias_box box = bias_box_of(args, at);
    const typename S::T *from = (const typename S::T *)work.bias + at;
#pragma unroll 1
    for (int key = 0; key < fragment.keys; key += S::N, stage->next()) {
        const uint32_t full = shared + S::BIAS_FULL + 8 * stage->place;
        const uint32_t to = shared + S::BIAS_BLOCK + stage->place * S::BIAS_BYTES;
        barrier_wait(shared + S::BIAS_EMPTY + 8 * stage->place, stage->phase ^ 1);
        if (bias_is_boxes<S>(args, fragment, box, rows, key)) {
            bias_boxes_load<S>(args, box, key, to, full);
            continue;
        }
        bias_block_load<S>(work, fragment, from, rows, key, to);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
        barrier_arrive(full); // for the elements stored by st.shared
    }
}

// Body of the three producer warps of the bias. For each tile: waits for Q_FULL, reads the task,
// arrives at Q_EMPTY once per warp, loads the bias. Returns at a tile without blocks.
template <class S>
__device__ __forceinline__ void bias_load(const struct sm90_forward &args, uint32_t shared,
                                          const struct sm90_task *tasks)
{
    struct sm90_ring<S::SLOTS> slot = {
        0, 0
    };
    struct sm90_ring<S::BIAS_STAGES> stage = {
        0, 0
    };
    for (;; slot.next()) {
        barrier_wait(shared + S::Q_FULL + 8 * slot.place, slot.phase);
        const struct work_tile tile = tasks[slot.place].tile;
        const int head = tasks[slot.place].head;
        __syncwarp();
        if (threadIdx.x % WARP_LANES == 0)
            barrier_arrive(shared + S::Q_EMPTY + 8 * slot.place);
        if (tile.blocks == 0)
            return;
#pragma unroll 1
        for (int f = 0; f < tile.fragment_count; f++)
            bias_fragment_load<S>(args, shared, args.work.fragments[tile.fragment + f], head,
                                  tile.rows, &stage);
    }
}

#endif
