// SPDX-License-Identifier: Apache-2.0
// Wide backward kernels on sm_90a: P and dS with softcap, and with both bias and softcap.
#ifndef CPATTN_KERNELS_CUDA_SM90_WIDE_GENERAL_CUH
#define CPATTN_KERNELS_CUDA_SM90_WIDE_GENERAL_CUH

#include "kernels/cuda/sm90_backward_bias.cuh"
#include "kernels/cuda/sm90_cap.cuh"
#include "kernels/cuda/sm90_wide_add.cuh"

// Masks a thread's scores of a step. keys, rows: how many of the tile's keys and of the block's
// queries there are from the thread's first on. first: key - query - low of its first score; a
// score is visible if this is in [0, span). all: no score of the step is masked; the other members
// do not count.
template <class C> struct wide_mask {
    int keys, rows, first;
    unsigned span;
    bool all;

    __device__ __forceinline__ wide_mask(const struct sm90_step *step, int group)
    {
        int key = group * C::KEYS + (int)((unsigned)thread_number() % 4 * 2);
        int query = (int)wide_query();
        all = step->keys == 0;
        keys = step->keys - key;
        rows = step->rows - query;
        first = key - query - step->low;
        span = (unsigned)(step->high - step->low) + 1;
    }

    // True if query wide_query() + 8 h exists and sees the thread's key x places behind its first.
    __device__ __forceinline__ bool visible(int h, int x) const
    {
        return all || (x < keys && h * 8 < rows && (unsigned)(first + x - h * 8) < span);
    }
};

// Loads LSE or D of a thread's two queries. `numbers` is the shared address of the stage's values.
static __device__ __forceinline__ void wide_numbers(uint32_t numbers, float (&x)[2])
{
    uint32_t at = numbers + wide_query() * 4;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x[0]) : "r"(at) : "memory");
    asm volatile("ld.shared.f32 %0, [%1 + 32];" : "=f"(x[1]) : "r"(at) : "memory");
}

// ---- softcap ------------------------------------------------------------------------------------

// Turns S into P, in place, and sets `slopes` to the slopes of the cap. Only for steps without a
// mask, with all arguments of the tanh within REACH.
template <class C, enum cap_reach REACH>
__device__ __forceinline__ void wide_p_within(float factor, float cap, const float (&lse)[2],
                                              float (&s)[C::SCORES], float (&slopes)[C::SCORES])
{
#pragma unroll
    for (int i = 0; i < C::SCORES; i++) {
        float t = cap_tanh<REACH>(s[i] * factor);
        s[i] = fast_exp2(fmaf(t, cap, -lse[i / 2 % 2]));
        slopes[i] = fmaf(-t, t, 1);
    }
}

// Turns S into P, in place, and sets `slopes`, for any step: by a polynomial tanh if there is no
// mask and the warp's arguments are within its reach, else by cap_tanh_far().
template <class C>
__device__ __forceinline__ void
wide_p_capped(const struct backward_params &p, const struct sm90_step *step, int group,
              uint32_t lse_at, float (&s)[C::SCORES], float (&slopes)[C::SCORES])
{
    const float factor = p.product_factor, cap = p.cap_factor;
    float lse[2];
    wide_numbers(lse_at, lse);
    const wide_mask<C> mask(step, group);
    enum cap_reach reach = mask.all ? cap_reach_of(s, factor) : CAP_FAR;
    if (reach == CAP_CLOSE) {
        wide_p_within<C, CAP_CLOSE>(factor, cap, lse, s, slopes);
        return;
    }
    if (reach == CAP_NEAR) {
        wide_p_within<C, CAP_NEAR>(factor, cap, lse, s, slopes);
        return;
    }
#pragma unroll
    for (int i = 0; i < C::SCORES; i++) {
        float t = cap_tanh_far(s[i] * factor, &slopes[i]);
        bool seen = mask.visible(i / 2 % 2, i / 4 * 8 + i % 2);
        s[i] = seen ? fast_exp2(fmaf(t, cap, -lse[i / 2 % 2])) : 0;
        slopes[i] = s[i] == 0 ? 0 : slopes[i];
    }
}

// ---- bias and softcap ---------------------------------------------------------------------------

// Loads the bias of a thread's scores from global memory, in base 2; 0 for masked scores.
template <typename T, class C>
__device__ __forceinline__ void wide_bias_load(const struct backward_params &p,
                                               const struct sm90_step *step, int group,
                                               float (&bias)[C::SCORES])
{
    const wide_mask<C> mask(step, group);
    const T *from = (const T *)p.bias + step->bias + wide_query() * p.bias_query_stride +
                    group * C::KEYS + (unsigned)thread_number() % 4 * 2;
    bool pairs = ((uintptr_t)from | (uintptr_t)p.bias_query_stride * 2) % 4 == 0;
    if (pairs && mask.all) {
#pragma unroll
        for (int i = 0; i < C::SCORES; i += 2) {
            const T *at = from + i / 2 % 2 * 8 * p.bias_query_stride + i / 4 * 8;
            float2 pair = pair_floats<T>(__ldg((const uint32_t *)at));
            bias[i] = pair.x * LOG2_E;
            bias[i + 1] = pair.y * LOG2_E;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < C::SCORES; i++) {
        int h = i / 2 % 2, x = i / 4 * 8 + i % 2;
        bias[i] = 0;
        if (p.bias && mask.visible(h, x))
            bias[i] = to_float(from[h * 8 * p.bias_query_stride + x]) * LOG2_E;
    }
}

// Turns S into P, in place, and replaces the bias by the slope of the cap. The slope 1 - tanh^2 is
// computed as 4 e / (1 + e)^2 with e = exp(-2 |x|), which has no cancellation.
template <class C>
__device__ __forceinline__ void
wide_p_general(const struct backward_params &p, const struct sm90_step *step, int group,
               uint32_t lse_at, float (&s)[C::SCORES], float (&bias)[C::SCORES])
{
    float lse[2];
    wide_numbers(lse_at, lse);
    const wide_mask<C> mask(step, group);
#pragma unroll
    for (int i = 0; i < C::SCORES; i++) {
        int h = i / 2 % 2, x = i / 4 * 8 + i % 2;
        float logit = s[i] * p.product_factor;
        float e = fast_exp2(fabsf(logit) * -2.885390081777927f);
        float half = __fdividef(1, 1 + e), tanh = (1 - e) * half;
        float z = logit * logit;
        float series = fmaf(z, fmaf(z, fmaf(z, -17 / 315.0f, 2 / 15.0f), -1 / 3.0f), 1);
        float slope = 4 * e * half * half;
        logit = (z < 0.0625f ? logit * series : copysignf(tanh, logit)) * p.cap_factor;
        logit = mask.visible(h, x) ? logit + bias[i] : -INFINITY;
        s[i] = fast_exp2(logit - lse[h]);
        bias[i] = slope;
    }
}

// Adds a thread's part of the bias gradient to dbias, or writes it with `once`, where all queries
// and keys of the step exist. Neighbouring lanes exchange pairs of two blocks of 8 keys, so that
// each lane has four adjacent keys of one block. The last of an odd number of blocks goes in pairs.
template <class C>
__device__ __forceinline__ void wide_dbias_fours(bool once, float *to, int64_t stride,
                                                 const float (&gradient)[C::SCORES])
{
    const bool odd = (unsigned)thread_number() % 2;
    float *fours = to + (odd ? 8 - 2 : 0);
#pragma unroll
    for (int i = 0; i + 8 <= C::SCORES; i += 8)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float *even_block = &gradient[i + 2 * h], *odd_block = &gradient[i + 4 + 2 * h];
            float mine[2], other[2];
#pragma unroll
            for (int k = 0; k < 2; k++) {
                mine[k] = odd ? odd_block[k] : even_block[k];
                other[k] = __shfl_xor_sync(0xffffffffu, odd ? even_block[k] : odd_block[k], 1);
            }
            float4 four = odd ? make_float4(other[0], other[1], mine[0], mine[1])
                              : make_float4(mine[0], mine[1], other[0], other[1]);
            float *where = fours + h * 8 * stride + i * 2;
            if (once)
                *(float4 *)where = four;
            else
                add_four(where, four);
        }
    constexpr int LAST = C::SCORES / 8 * 8;
#pragma unroll
    for (int i = LAST; i < C::SCORES; i += 2) {
        float *where = to + (i - LAST) / 2 * 8 * stride + LAST * 2;
        if (once)
            *(float2 *)where = make_float2(gradient[i], gradient[i + 1]);
        else
            add_pair(where, gradient[i], gradient[i + 1]);
    }
}

// Adds to a dbias that all queries share: sums over the 16 queries of a warp, then one atomic per
// key.
template <class C>
__device__ __forceinline__ void wide_dbias_shared(const struct backward_params &p,
                                                  const struct sm90_step *step, int group,
                                                  const float (&gradient)[C::SCORES])
{
    int lane = thread_number() % WARP_LANES, key = group * C::KEYS + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < C::SCORES; i++) {
        if (i / 2 % 2)
            continue;
        float sum = gradient[i] + gradient[i + 2];
#pragma unroll
        for (int lanes = 4; lanes < WARP_LANES; lanes *= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
        int x = i / 4 * 8 + i % 2;
        if (lane < 4 && (step->keys == 0 || key + x < step->keys))
            add_float(p.dbias + step->bias + key + x, sum);
    }
}

// Adds the bias gradient of a step to dbias: dS before the slope of the cap and the scale. Called
// by a consumer warpgroup.
template <class C>
__device__ __forceinline__ void wide_dbias_add(const struct backward_params &p,
                                               const struct sm90_step *step, int group,
                                               const float (&gradient)[C::SCORES])
{
    if (p.bias_query_stride == 0) {
        wide_dbias_shared<C>(p, step, group, gradient);
        return;
    }
    const wide_mask<C> mask(step, group);
    float *to = p.dbias + step->bias + wide_query() * p.bias_query_stride + group * C::KEYS +
                (unsigned)thread_number() % 4 * 2;
    bool fours = ((uintptr_t)(p.dbias + step->bias) | p.bias_query_stride * 4) % 16 == 0;
    if (fours && (mask.all || (p.dbias_once && step_is_there<C>(step)))) {
        wide_dbias_fours<C>(p.dbias_once, to, p.bias_query_stride, gradient);
        return;
    }
#pragma unroll
    for (int i = 0; i < C::SCORES; i++) {
        int h = i / 2 % 2, x = i / 4 * 8 + i % 2;
        if (mask.visible(h, x))
            add_float(to + h * 8 * p.bias_query_stride + x, gradient[i]);
    }
}

// Turns dP into dS, in place. P (dP - D) is the gradient of the bias and is added to dbias, if
// there is one; times the slope of the cap and early_scale() it is dS. `weights` is P.
template <typename T, class C>
__device__ __forceinline__ void
wide_ds_general(const struct backward_params &p, const struct sm90_step *step, int group,
                uint32_t delta_at, const float (&weights)[C::SCORES],
                const float (&slopes)[C::SCORES], float (&dp)[C::SCORES])
{
    float delta[2];
    wide_numbers(delta_at, delta);
#pragma unroll
    for (int i = 0; i < C::SCORES; i++)
        dp[i] = weights[i] * (dp[i] - delta[i / 2 % 2]);
    if (p.dbias)
        wide_dbias_add<C>(p, step, group, dp);
#pragma unroll
    for (int i = 0; i < C::SCORES; i++)
        dp[i] *= slopes[i] * early_scale<T>(p);
}

#endif
