// SPDX-License-Identifier: Apache-2.0
// Forward on sm_90a: mask and online softmax, from scores to weights.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_SOFTMAX_CUH
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_SOFTMAX_CUH

#include "kernels/cuda/sm90_forward_features.cuh"
#include "kernels/cuda/sm90_forward_state.cuh"

// `out` and `sum` are rescaled to a new row maximum only if it exceeds the old one by more than
// this, in base 2. Until then weights are at most 2^8, and no precision is lost.
#define MAX_SLACK 8.0f
// Where blocks are weighed with the maxima of earlier blocks: sums of weights in a thread. Above
// SUM_MOST the row maximum is raised. Above SUM_LOST the row is computed again: rescaling factors,
// which may be as small as 2^-126 before they become 0, could make such a sum vanish beside those
// of later keys.
#define SUM_MOST  0x1p24f
#define SUM_LOST  0x1p96f
// Initial row maximum, below every logit. Finite, so that no difference of two maxima is NaN.
#define MAX_NONE  (-1e38f)

// Sets the scores of invisible keys to -inf. low, high, keys: of the fragment;
// `key`: first of the block; `row`: the thread's first row in the tile.
template <class S>
__device__ __forceinline__ void scores_mask(struct sm90_state<S> &state, int low, int high,
                                            int keys, int key, int row)
{
    int column = key + 2 * ((int)threadIdx.x % 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t seen = columns_between(low + row + 8 * half - column,
                                        min(high + row + 8 * half, keys) - column);
#pragma unroll
        for (int n = 0; n < S::N / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (!(seen & 1u << (2 * n + i)))
                    state.scores[4 * n + 2 * half + i] = -CUDART_INF_F;
    }
}

// Largest of the thread's scores in row `half`.
template <class S>
__device__ __forceinline__ float row_most(const float (&scores)[S::N / 2], int half)
{
    float most[2] = {scores[2 * half], scores[2 * half + 1]};
#pragma unroll
    for (int n = 1; n < S::N / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            most[i] = fmaxf(most[i], scores[4 * n + 2 * half + i]);
    return fmaxf(most[0], most[1]);
}

// Raises the row maxima, and rescales `sum`, if a logit may exceed its row's maximum by more than
// MAX_SLACK. Returns true if a maximum in the warp may have grown; the caller must then multiply
// `out` by `shrink`, which is set only in this case. Called by whole warps.
//
// A thread first looks at its own scores alone. The four lanes of a row exchange their maxima only
// if some lane of the warp finds a maximum to raise. bits_most() takes half the instructions of
// row_most(). It does not find the largest score if all scores of the thread are negative. This
// matters only if the threshold that logits are compared with (`least`) is negative too.
template <class S, class Logit>
__device__ __forceinline__ bool maxima_raise(struct sm90_state<S> &state, const Logit &logit,
                                             float shrink[2])
{
    float(&seen)[2] = Logit::SERIES ? state.seen_close : state.seen;
    float most[2], max[2];
    bool grown = false, unsure = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int bits = bits_most<S>(state.scores, half);
        float least =
            S::MAX ? fminf(state.max[half] + MAX_SLACK, seen[half]) : state.max[half] + MAX_SLACK;
        most[half] = __int_as_float(bits);
        max[half] = logit(most[half]);
        unsure = unsure || (bits < 0 && least < 0);
        grown = grown || max[half] > state.max[half] + MAX_SLACK;
    }
    grown = __any_sync(0xffffffffu, grown || unsure);
    if (grown && __any_sync(0xffffffffu, unsure))
#pragma unroll
        for (int half = 0; half < 2; half++) {
            most[half] = row_most<S>(state.scores, half);
            max[half] = logit(most[half]);
        }
    if (S::MAX)
#pragma unroll
        for (int half = 0; half < 2; half++)
            seen[half] = fmaxf(seen[half], Logit::SERIES ? most[half] : max[half]);
    if (grown) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float after = fmaxf(state.max[half], quad_max(max[half]));
            shrink[half] = fast_exp2(state.max[half] - after);
            state.max[half] = after;
            if (S::GUESS && state.sum[half] > SUM_LOST)
                state.sum[half] = CUDART_INF_F;
            state.sum[half] *= shrink[half];
        }
    }
    return grown;
}

// True if all rows of the warp have seen a key. Called by whole warps.
template <class S> __device__ __forceinline__ bool maxima_are_set(const struct sm90_state<S> &state)
{
    return __all_sync(0xffffffffu, state.max[0] > MAX_NONE && state.max[1] > MAX_NONE);
}

// Turns scores into weights, 2^(logit - maximum), and adds them to `sum`. The weights of a block
// are summed first: single weights could be lost to rounding beside a large `sum`.
template <class S, class Logit>
__device__ __forceinline__ void scores_weigh(struct sm90_state<S> &state, const Logit &logit)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sums[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < S::N / 8; n++) {
            float *pair = &state.scores[4 * n + 2 * half];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                pair[i] = fast_exp2(logit(pair[i], state.max[half]));
                sums[i] += pair[i];
            }
        }
        state.sum[half] += sums[0] + sums[1];
    }
}

// True if no sum in the warp calls for a larger maximum. Sums without a guess never do; then they
// may be NaN, which rows of padding beyond the tile often are. Called by whole warps.
template <class S> __device__ __forceinline__ bool sums_are_small(const struct sm90_state<S> &state)
{
    return state.guess < GUESS_NOW ||
           __all_sync(0xffffffffu, state.sum[0] <= SUM_MOST && state.sum[1] <= SUM_MOST);
}

// Raises the maxima of rows with large sums, and rescales the sums and the weights of the block.
// Multiplies `shrink`, of maxima_raise(), by the factors; grown: it is set. The sums of a row above
// SUM_LOST become infinite and never finite again. Called by whole warps.
template <class S>
__device__ __forceinline__ void sums_shrink(struct sm90_state<S> &state, bool grown,
                                            float shrink[2])
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float most = quad_max(state.sum[half]);
        float factor = 1;
        if (most > SUM_LOST) {
            state.sum[half] = CUDART_INF_F;
        } else if (most > SUM_MOST) {
            const float after = state.max[half] + (float)ilogbf(most);
            factor = fast_exp2(state.max[half] - after);
            state.max[half] = after;
        }
        shrink[half] = grown ? shrink[half] * factor : factor;
        state.sum[half] *= factor;
#pragma unroll
        for (int n = 0; n < S::N / 8; n++) {
            state.scores[4 * n + 2 * half] *= factor;
            state.scores[4 * n + 2 * half + 1] *= factor;
        }
    }
}

// True if no row of the warp is lost: sums are at most SUM_LOST and `out` is finite. Called by
// whole warps.
template <class S> __device__ __forceinline__ bool state_is_good(const struct sm90_state<S> &state)
{
    bool good = state.sum[0] <= SUM_LOST && state.sum[1] <= SUM_LOST;
#pragma unroll
    for (int i = 0; i < S::DV / 2; i++)
        good = good && fabsf(state.out[i]) < CUDART_INF_F;
    return __all_sync(0xffffffffu, good);
}

// Rounds the weights to T, as A fragments.
template <class S> __device__ __forceinline__ void weights_pack(struct sm90_state<S> &state)
{
#pragma unroll
    for (int step = 0; step < S::N / 16; step++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            state.weights[step][i] = pack<typename S::T>(state.scores[8 * step + 2 * i],
                                                         state.scores[8 * step + 2 * i + 1]);
}

#endif
