// SPDX-License-Identifier: Apache-2.0
// Forward on sm_90a: scores become weights.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_SOFTMAX_CUH
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_SOFTMAX_CUH

#include "kernels/cuda/sm90_forward_features.cuh"
#include "kernels/cuda/sm90_forward_state.cuh"

// Results are scaled down to a new maximum of their row when it is larger by this power of 2: until
// then weights stay under 2^8 and nothing is lost.
#define MAX_SLACK 8.0f
// Below every logit. Finite, so that no difference of two maxima is NaN.
#define MAX_NONE  (-1e38f)

// Hides the scores of keys that their row does not see. `row` is the thread's first.
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

// The largest score of a row that a thread has.
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

// Raises the rows' maxima as the scores call for. Returns whether some lane's may have grown; then
// `out` is to be multiplied by `shrink`.
//
// A thread looks at what it has of a row, and only when some thread finds a maximum to raise do the
// four of a row exchange theirs. Maxima of bits take half of the instructions. Where all scores of
// a thread are below 0 the one found is not the largest, which matters where the maximum so far is
// below 0, too.
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
            state.sum[half] *= shrink[half];
        }
    }
    return grown;
}

// Scores become weights. A block's weights are summed before they meet the sum of all before, which
// may be so large that single ones would vanish beside it.
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
