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

// A row's part of O: o = keep * o + take * out where `some`. keep = 0 does not read.
template <class S>
__device__ __forceinline__ void row_blend(float *o, bool some, float keep,
                                          const float (&out)[S::DV / 2], int half, float take,
                                          int d_v)
{
    int column = row_column();
    o += column;
    d_v = some ? d_v - column : 0;
#pragma unroll
    for (int n = 0; n < S::DV / 8; n += 2) {
        float4 after = row_four<S>(out, n, half, take, threadIdx.x % 2 != 0);
        if (n * 8 < d_v) {
            if (keep != 0) {
                float4 before = *(const float4 *)(o + n * 8);
                after.x = fmaf(keep, before.x, after.x);
                after.y = fmaf(keep, before.y, after.y);
                after.z = fmaf(keep, before.z, after.z);
                after.w = fmaf(keep, before.w, after.w);
            }
            *(float4 *)(o + n * 8) = after;
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

// The thread's two rows in the running result.
struct sm90_rows {
    int64_t at[2];
    bool some[2];    // there is such a row
    float before[2]; // LSE
};

// LSE of the thread's rows in the running result, 0 where there is no such row. Each row is in one
// tile, so nobody else writes it during the launch.
static __device__ __forceinline__ void
lse_read(const struct forward_work &work, const struct sm90_task *task, int first_row, float lse[2])
{
    const float *from = work.lse + task->head * work.q_rows + task->tile.q_row;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = first_row + 8 * half;
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
    if (threadIdx.x % 4 == 0)
        work.lse[head * work.q_rows + row] = lse;
    row_set<S>(work.o + (row * work.heads + head) * work.d_v, out, half, __fdividef(1, sum));
}

// Merges any row that there is and that saw something.
template <class S>
__device__ __forceinline__ void row_merge(const struct forward_work &work, int64_t row, bool some,
                                          float before, int head, const float (&out)[S::DV / 2],
                                          int half, float sum, float lse)
{
    some = some && sum != 0;
    float most = fmaxf(before, lse);
    float keep = expf(before - most), take = expf(lse - most), both = keep + take;
    if (some && threadIdx.x % 4 == 0)
        work.lse[head * work.q_rows + row] = most + logf(both);
    row_blend<S>(work.o + (row * work.heads + head) * work.d_v, some, keep / both, out, half,
                 take / (both * sum), work.d_v);
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
