// SPDX-License-Identifier: Apache-2.0
// Forward on sm_90a: what a thread holds, and how it merges into the running result.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_STATE_CUH
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_STATE_CUH

#include <math_constants.h>

#include "kernels/cuda/sm90_cap.cuh"
#include "kernels/cuda/sm90_forward_load.cuh"

// What a thread holds of its group's rows: rows g and g + 8 of its warp's 16.
template <class S> struct sm90_state {
    float scores[S::N / 2];
    float out[S::DV / 2];
    uint32_t weights[S::N / 16][4];
    float max[2];  // of the row, base 2; that which `out` and `sum` are relative to
    float sum[2];  // of this thread's columns
    float seen[2]; // largest logit that this thread had of the row, base 2, with MAX
    // For blocks that a series caps: the largest product of query and key instead. Its logit is
    // computed once, without the error of a short series.
    float seen_close[2];
};

// ---- merge --------------------------------------------------------------------------------------

// Of a pair of 8 columns each, four neighbouring elements for each lane: neighbouring lanes
// exchange pairs, so that each has every other 8 columns. `n` is even; `half` says which of the
// rows.
template <class S>
__device__ __forceinline__ float4 row_four(const float (&out)[S::DV / 2], int n, int half,
                                           float take, bool odd)
{
    float mine[2], other[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float even_columns = take * out[4 * n + 2 * half + i];
        float odd_columns = take * out[4 * n + 4 + 2 * half + i];
        mine[i] = odd ? odd_columns : even_columns;
        other[i] = __shfl_xor_sync(0xffffffffu, odd ? even_columns : odd_columns, 1);
    }
    return odd ? make_float4(other[0], other[1], mine[0], mine[1])
               : make_float4(mine[0], mine[1], other[0], other[1]);
}

// The first column of a lane's.
static __device__ __forceinline__ int row_column(void)
{
    int t = (int)threadIdx.x % 4, odd = t % 2;
    return 8 * odd + 2 * (t - odd);
}

// Four numbers of O, rounded, at four elements of `out`.
template <typename T> __device__ __forceinline__ void four_round(T *out, float4 four)
{
    *(uint2 *)out = make_uint2(pack<T>(four.x, four.y), pack<T>(four.z, four.w));
}

// The place of a row in O.
static __device__ __forceinline__ int64_t place_of(const struct forward_work &work, int64_t row,
                                                   int head)
{
    return (row * work.heads + head) * work.d_v;
}

// A row's part of O: o = keep * o + take * out where `some`. keep = 0 does not read. `out` is not
// taken unless the row `saw` any key: others may have values that are not finite.
template <class S>
__device__ __forceinline__ void row_blend(const struct forward_work &work, int64_t row, int head,
                                          bool some, bool saw, float keep,
                                          const float (&out)[S::DV / 2], int half, float take)
{
    int column = row_column(), d_v = some ? work.d_v - column : 0;
    int64_t first = place_of(work, row, head) + column;
#pragma unroll
    for (int n = 0; n < S::DV / 8; n += 2) {
        float4 after = row_four<S>(out, n, half, take, threadIdx.x % 2 != 0);
        if (!saw)
            after = make_float4(0, 0, 0, 0);
        if (n * 8 < d_v) {
            float4 *at = (float4 *)(work.o + first + n * 8);
            if (keep != 0) {
                float4 before = *at;
                after.x = fmaf(keep, before.x, after.x);
                after.y = fmaf(keep, before.y, after.y);
                after.z = fmaf(keep, before.z, after.z);
                after.w = fmaf(keep, before.w, after.w);
            }
            if (!work.fold.out_only)
                *at = after;
            if (work.fold.out)
                four_round((typename S::T *)work.fold.out + first + n * 8, after);
        }
    }
}

// The same where there are such a row and all columns, and nothing is kept. Without branches the
// exchanges run side by side.
template <class S>
__device__ __forceinline__ void row_set(float *o, const float (&out)[S::DV / 2], int half,
                                        float take)
{
    o += row_column();
#pragma unroll
    for (int n = 0; n < S::DV / 8; n += 2)
        *(float4 *)(o + n * 8) = row_four<S>(out, n, half, take, threadIdx.x % 2 != 0);
}

// The same, rounded. Of four times 8 columns, the four lanes of a row exchange pairs of columns so
// that each has 8 in a row: first t with t ^ 1, so that the even one has columns 8 n and 8 (n + 2),
// then t with t ^ 2, so that the upper one has what begins at 8 (n + 2).
template <class S>
__device__ __forceinline__ void row_round(typename S::T *o, const float (&out)[S::DV / 2], int half,
                                          float take)
{
    const int t = (int)threadIdx.x % 4;
    const bool odd = t % 2 != 0, upper = t >= 2;
    o += 8 * t;
#pragma unroll
    for (int n = 0; n < S::DV / 8; n += 4) {
        uint32_t pair[4], got[2];
#pragma unroll
        for (int i = 0; i < 4; i++)
            pair[i] = pack<typename S::T>(take * out[4 * (n + i) + 2 * half],
                                          take * out[4 * (n + i) + 2 * half + 1]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            got[i] = __shfl_xor_sync(0xffffffffu, odd ? pair[2 * i] : pair[2 * i + 1], 1);
            uint32_t own = odd ? pair[2 * i + 1] : pair[2 * i];
            pair[2 * i] = odd ? got[i] : own;
            pair[2 * i + 1] = odd ? own : got[i];
        }
#pragma unroll
        for (int i = 0; i < 2; i++)
            got[i] = __shfl_xor_sync(0xffffffffu, upper ? pair[i] : pair[2 + i], 2);
        *(uint4 *)(o + 8 * n) = upper ? make_uint4(got[0], got[1], pair[2], pair[3])
                                      : make_uint4(pair[0], pair[1], got[0], got[1]);
    }
}

// The thread's two rows in the running result.
struct sm90_rows {
    int64_t at[2];
    bool some[2];    // there is such a row
    float before[2]; // LSE
};

// LSE of the thread's rows before, 0 where there is no such row. Each row is in one tile, so nobody
// else writes it during the launch.
static __device__ __forceinline__ void
lse_read(const struct forward_work &work, const struct sm90_task *task, int first_row, float lse[2])
{
    const float *from = work.lse + task->head * work.q_rows + task->tile.q_row;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = first_row + 8 * half;
        lse[half] = work.fold.lse_begin;
        if (!work.fold.lse_begins)
            lse[half] = row < task->tile.rows ? from[row * work.row_step] : 0;
    }
}

static __device__ __forceinline__ struct sm90_rows rows_of(const struct forward_work &work,
                                                           const struct sm90_task *task,
                                                           int first_row, const float before[2])
{
    struct sm90_rows rows;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = first_row + 8 * half;
        rows.at[half] = task->tile.q_row + row * work.row_step;
        rows.some[half] = row < task->tile.rows;
        rows.before[half] = before[half];
    }
    return rows;
}

// Merges a row that was not there before, of which all columns are: O and LSE are the tile's own.
template <class S>
__device__ __forceinline__ void row_begin(const struct forward_work &work, int64_t row, int head,
                                          const float (&out)[S::DV / 2], int half, float sum,
                                          float lse)
{
    const int64_t first = place_of(work, row, head);
    const float take = __fdividef(1, sum);
    if (threadIdx.x % 4 == 0)
        work.lse[head * work.q_rows + row] = lse;
    if (!work.fold.out_only)
        row_set<S>(work.o + first, out, half, take);
    if (work.fold.out)
        row_round<S>((typename S::T *)work.fold.out + first, out, half, take);
}

// Merges any row that there is. One that saw nothing keeps what it has, which is written only if it
// is not there yet.
template <class S>
__device__ __forceinline__ void row_merge(const struct forward_work &work, int64_t row, bool some,
                                          float before, int head, const float (&out)[S::DV / 2],
                                          int half, float sum, float lse)
{
    const bool saw = sum != 0, begins = work.fold.begins;
    float keep = before == -CUDART_INF_F ? 0 : 1, take = 0, after = before;
    some = some && (saw || begins || work.fold.out);
    if (saw) {
        float most = fmaxf(before, lse);
        keep = expf(before - most);
        take = expf(lse - most);
        float both = keep + take;
        after = most + logf(both);
        keep /= both;
        take /= both * sum;
    }
    if (some && (saw || begins) && threadIdx.x % 4 == 0)
        work.lse[head * work.q_rows + row] = after;
    row_blend<S>(work, row, head, some, saw, begins ? 0 : keep, out, half, take);
}

template <class S>
__device__ __forceinline__ void state_merge(const struct sm90_state<S> &state,
                                            const struct forward_work &work,
                                            const struct sm90_rows &rows, int head)
{
    const float ln_2 = 0.6931471805599453f;
    float sum[2], lse[2];
    bool fresh = work.d_v == S::DV;
    __syncwarp(); // four lanes have read what one of them writes
#pragma unroll
    for (int half = 0; half < 2; half++) {
        sum[half] = quad_sum(state.sum[half]);
        lse[half] = (state.max[half] + log2f(sum[half])) * ln_2;
        fresh = fresh && rows.some[half] && sum[half] != 0 && rows.before[half] == -CUDART_INF_F;
    }
    fresh = __all_sync(0xffffffffu, fresh);
#pragma unroll
    for (int half = 0; half < 2; half++)
        if (fresh)
            row_begin<S>(work, rows.at[half], head, state.out, half, sum[half], lse[half]);
        else
            row_merge<S>(work, rows.at[half], rows.some[half], rows.before[half], head, state.out,
                         half, sum[half], lse[half]);
}

// The largest logit that a thread had of a row, base 2.
template <class S>
__device__ __forceinline__ float row_seen(const struct sm90_state<S> &state,
                                          const struct forward_work &work, int half)
{
    if (!S::CAP || state.seen_close[half] == -CUDART_INF_F)
        return state.seen[half];
    return fmaxf(state.seen[half],
                 work.cap * cap_tanh<CAP_NEAR>(work.factor * state.seen_close[half]));
}

// Raises the head's largest logit to those of a warp's rows.
template <class S>
__device__ __forceinline__ void state_seen(const struct sm90_state<S> &state,
                                           const struct forward_work &work,
                                           const struct sm90_rows &rows, int head)
{
    const float ln_2 = 0.6931471805599453f;
    float most = fmaxf(rows.some[0] ? row_seen<S>(state, work, 0) : -CUDART_INF_F,
                       rows.some[1] ? row_seen<S>(state, work, 1) : -CUDART_INF_F);
    most = warp_max(most);
    if (work.max_logit && threadIdx.x % WARP_LANES == 0 && most > -CUDART_INF_F)
        atomic_max(work.max_logit + head, most * ln_2);
}

#endif
