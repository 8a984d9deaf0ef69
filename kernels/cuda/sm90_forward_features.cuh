// SPDX-License-Identifier: Apache-2.0
// Forward on sm_90a: softcap and bias.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_FEATURES_CUH
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_FEATURES_CUH

#include "kernels/cuda/sm90_bias.cuh"
#include "kernels/cuda/sm90_cap.cuh"
#include "kernels/cuda/sm90_forward_load.cuh"

static const float LOG2_E = 1.4426950408889634f;

// ---- softcap ------------------------------------------------------------------------------------

// Products become capped logits in base 2: cap * tanh(factor * score).
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
// Rows of N elements. Chunks of a row change places, so that eight rows in the same columns lie in
// different banks.

// What the place of a chunk of the row is XORed with, in bytes.
template <class S> __device__ __forceinline__ uint32_t bias_turn(int row)
{
    const int chunks = S::BIAS_ROW / CHUNK_BYTES;
    int turn = chunks % 8 == 0   ? row & 7
               : chunks % 4 == 0 ? row >> 1 & 3
               : chunks % 2 == 0 ? row >> 2 & 1
                                 : 0;
    return (uint32_t)turn * CHUNK_BYTES;
}

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

// Adds a block's bias, times `factor`, to a thread's scores. `row` is the thread's first.
template <class S>
__device__ __forceinline__ void scores_bias(float (&scores)[S::N / 2], uint32_t bias, int row,
                                            float factor)
{
    uint32_t at = bias + row * S::BIAS_ROW + threadIdx.x % 4 * 4, turn = bias_turn<S>(row);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < S::N / 8; n++) {
            uint32_t pair;
            asm volatile("ld.shared.b32 %0, [%1];"
                         : "=r"(pair)
                         : "r"(at + half * 8 * S::BIAS_ROW + (n & ~7) * CHUNK_BYTES +
                               ((n & 7) * CHUNK_BYTES ^ turn))
                         : "memory");
            float *to = &scores[4 * n + 2 * half];
            to[0] = fmaf(pair_low<typename S::T>(pair), factor, to[0]);
            to[1] = fmaf(pair_high<typename S::T>(pair), factor, to[1]);
        }
}

// ---- bias, loading ------------------------------------------------------------------------------

#define BIAS_THREADS (SM90_BIAS_WARPS * WARP_LANES)

// A block of keys from `key` on. Rows behind the tile's get 0, and so do keys that their row does
// not see, where there need not be any bias. Each thread has one chunk of every few rows.
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
                             to + row * S::BIAS_ROW + (chunk * CHUNK_BYTES ^ bias_turn<S>(row))),
                         "l"(from)
                         : "memory");
        return;
    }
#pragma unroll 1
    for (int row = first_row; row < S::ROWS; row += at_once, from += at_once * stride) {
        int begin = fragment.low + row - first;
        int end = row < rows ? min(fragment.high + row, fragment.keys) - first : 0;
        bias_chunk_load(to + row * S::BIAS_ROW + (chunk * CHUNK_BYTES ^ bias_turn<S>(row)), from,
                        begin, end);
    }
}

// What three warps do beside the one that loads the rest: the bias of tile by tile.
template <class S>
__device__ __forceinline__ void bias_load(const struct forward_work &work, uint32_t shared,
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
        for (int f = 0; f < tile.fragment_count; f++) {
            const struct work_fragment fragment = work.fragments[tile.fragment + f];
            const typename S::T *from =
                (const typename S::T *)work.bias + head * work.bias_head_stride + fragment.bias;
#pragma unroll 1
            for (int key = 0; key < fragment.keys; key += S::N) {
                uint32_t full = shared + S::BIAS_FULL + 8 * stage.place;
                barrier_wait(shared + S::BIAS_EMPTY + 8 * stage.place, stage.phase ^ 1);
                bias_block_load<S>(work, fragment, from, tile.rows, key,
                                   shared + S::BIAS_BLOCK + stage.place * S::BIAS_BYTES);
                asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full)
                             : "memory");
                barrier_arrive(full); // for what was stored
                stage.next();
            }
        }
    }
}

#endif
