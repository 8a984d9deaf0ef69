// SPDX-License-Identifier: Apache-2.0
// Forward on sm_90a: the registers of a consumer thread, and the merge into the running result.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_STATE_CUH
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_STATE_CUH

#include <math_constants.h>

#include "kernels/cuda/sm90_cap.cuh"
#include "kernels/cuda/sm90_forward_load.cuh"

// Whether a warp guesses that the row maxima of earlier blocks will do for the next ones. A search
// for the maxima of a block takes 8 % of its time. Instead the sums of weights tell afterwards if a
// maximum must be raised. If weights overflowed by then, the warp asks for the tile again, and
// never guesses in it.
enum sm90_guess {
    GUESS_NEVER, // not in this tile
    GUESS_LATER, // some row has no maximum yet
    GUESS_NOW,
    GUESS_WILD // as GUESS_NOW, and weights were so large that `out` may not be finite
};

// Registers of a consumer thread. It holds parts of rows g and g + 8 (g = lane / 4) of the 16 rows
// of its warp; indices 0 and 1 of the arrays of two. Accumulators are laid out as in sm90.cuh.
template <class S> struct sm90_state {
    float scores[S::N / 2];         // accumulator of Q K', then logits, then weights
    float out[S::DV / 2];           // accumulator of weights times V
    uint32_t weights[S::N / 16][4]; // A fragments
    float max[2];                   // reference maximum of the row, base 2, for `out` and `sum`
    float sum[2];                   // of the weights in this thread's columns
    enum sm90_guess guess;          // the same for a warp
    float seen[2]; // largest logit of the row in this thread's columns, base 2; only with MAX
    // The same for blocks that a series caps, but the largest product of query and key. Its logit
    // is computed once at the end, without the error of a short series.
    float seen_close[2];
};

// ---- merge --------------------------------------------------------------------------------------

// Returns four neighbouring elements of take * out, of row `half` and columns 8 n .. 8 n + 15.
// Neighbouring lanes exchange pairs: even lanes get elements of the lower 8 columns, odd lanes of
// the upper 8. `n` is even; `odd`: this lane is odd. Called by whole warps.
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

// First column of the four that row_four() returns for n = 0.
static __device__ __forceinline__ int row_column(void)
{
    int t = (int)threadIdx.x % 4, odd = t % 2;
    return 8 * odd + 2 * (t - odd);
}

// Stores four elements of O, rounded to T, at `out`.
template <typename T> __device__ __forceinline__ void four_round(T *out, float4 four)
{
    *(uint2 *)out = make_uint2(pack<T>(four.x, four.y), pack<T>(four.z, four.w));
}

// Index of the first element of a row of O.
static __device__ __forceinline__ int64_t place_of(const struct forward_work &work, int64_t row,
                                                   int head)
{
    return (row * work.heads + head) * work.d_v;
}

// Merges the thread's part of a row of O: o = keep * o + take * out. Stores nothing unless `some`.
// If keep is 0, o is not read. `out` counts as 0 unless the row `saw` a key, because it may not be
// finite then. Called by whole warps.
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

// The same for a row that exists, d_v = DV and keep = 0. `o`: first element of the row. There are
// no branches, so that the shuffles overlap.
template <class S>
__device__ __forceinline__ void row_set(float *o, const float (&out)[S::DV / 2], int half,
                                        float take)
{
    o += row_column();
#pragma unroll
    for (int n = 0; n < S::DV / 8; n += 2)
        *(float4 *)(o + n * 8) = row_four<S>(out, n, half, take, threadIdx.x % 2 != 0);
}

// The same, rounded to T. Fragment i of a row has the columns 8 i .. 8 i + 7. Of fragments n to
// n + 3, lane t of the row's four lanes stores fragment n + t. The lanes exchange pairs of columns
// twice. After the exchange with lane t ^ 1, an even lane holds 4 columns each of fragments n and
// n + 2, an odd lane of n + 1 and n + 3. After that with t ^ 2, each lane holds its whole fragment.
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
    int64_t at[2];   // row of O and LSE
    bool some[2];    // the tile has this row
    float before[2]; // LSE before the merge
};

// Reads the LSE of the thread's rows before the merge; 0 for rows beyond the tile. Each row is in
// one tile, so no other thread block writes it during the launch.
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

// Merges a row whose LSE was -inf, with d_v = DV: O and LSE become those of the tile.
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

// Merges any row. Stores nothing unless `some`: the tile has the row. A row that saw no key keeps O
// and LSE, which are then stored only if fold.begins (both) or fold.out (O) asks for it.
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
    __syncwarp(); // all four lanes of a row have read its LSE before one of them writes it
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

// Largest logit of row `half` in this thread's columns, base 2.
template <class S>
__device__ __forceinline__ float row_seen(const struct sm90_state<S> &state,
                                          const struct forward_work &work, int half)
{
    if (!S::CAP || state.seen_close[half] == -CUDART_INF_F)
        return state.seen[half];
    return fmaxf(state.seen[half],
                 work.cap * cap_tanh<CAP_NEAR>(work.factor * state.seen_close[half]));
}

// Raises max_logit of the head to the largest logit of the warp's rows. Called by whole warps.
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
