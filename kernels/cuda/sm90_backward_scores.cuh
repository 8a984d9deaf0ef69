// SPDX-License-Identifier: Apache-2.0
// Backward on sm_90a, up to head dimension 128: P' from S' and dS' from dP', in registers.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_SCORES_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_SCORES_CUH

#include "kernels/cuda/sm90_backward_add.cuh"
#include "kernels/cuda/sm90_backward_bias.cuh"
#include "kernels/cuda/sm90_backward_load.cuh"
#include "kernels/cuda/sm90_cap.cuh"

// The mask of a thread's scores in a step. Called with i, returns whether score i is visible.
template <class C> struct scores_seen {
    uint32_t queries[2]; // of each of the thread's two keys: bits as in columns_between()

    __device__ __forceinline__ scores_seen(const struct sm90_step *step)
    {
        unsigned thread = thread_number(), lane = thread % WARP_LANES;
        int key = (int)((thread / WARP_LANES - 4) * 16 + lane / 4);
#pragma unroll
        for (int h = 0; h < 2; h++, key += 8) {
            int first = key - (int)(lane % 4 * 2);
            uint32_t seen = columns_between(first - step->high, first - step->low + 1);
            queries[h] = step->keys == 0 ? ~0u : key < step->keys ? seen : 0;
        }
    }

    __device__ __forceinline__ bool operator()(int i) const
    {
        return queries[i / 2 % 2] & 1u << (i / 4 * 2 + i % 2);
    }
};

// Sets the masked scores of a thread to `hidden`, for which P is 0.
template <class C>
__device__ __forceinline__ void scores_hide(const struct sm90_step *step, float hidden,
                                            float (&s)[C::SCORES])
{
    const scores_seen<C> seen(step);
#pragma unroll
    for (int i = 0; i < C::SCORES; i++)
        if (!seen(i))
            s[i] = hidden;
}

static __device__ __forceinline__ float2 shared_pair(uint32_t address)
{
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(pair.x), "=f"(pair.y)
                 : "r"(address)
                 : "memory");
    return pair;
}

// LSE or D of the two queries of a thread's scores i..i + 3. `from`: shared address of those of its
// first query, see lse_place(). `four` keeps a load of four values from one call to the next, so
// call in ascending order of i.
template <class C>
__device__ __forceinline__ float2 numbers_pair(uint32_t from, int i, float4 &four)
{
    if (!C::BY_FOURS)
        return shared_pair(from + i / 4 * 32);
    if (i % 8 == 0)
        four = shared_four(from + i / 8 * 64);
    return i % 8 == 0 ? make_float2(four.x, four.y) : make_float2(four.z, four.w);
}

// ---- P ------------------------------------------------------------------------------------------

// Shared address of the LSE of a thread's first query in a stage. D lies DELTA - LSE bytes further.
template <class C> __device__ __forceinline__ uint32_t lse_place(int stage, uint32_t shared)
{
    return shared + C::LSE + stage * C::Q_ROWS * 4 +
           (unsigned)thread_number() % 4 * (C::BY_FOURS ? 16 : 8);
}

// P' = exp2(factor S' - LSE), in place, with LSE in base 2.
template <class C>
__device__ __forceinline__ void p_make(float factor, const struct sm90_step *step, int stage,
                                       uint32_t shared, float (&s)[C::SCORES])
{
    if (step->keys != 0)
        scores_hide<C>(step, factor < 0 ? INFINITY : -INFINITY, s);
    uint32_t lse = lse_place<C>(stage, shared);
    float4 four;
#pragma unroll
    for (int i = 0; i < C::SCORES; i += 4) {
        float2 l = numbers_pair<C>(lse, i, four);
        s[i] = fast_exp2(fmaf(s[i], factor, -l.x));
        s[i + 1] = fast_exp2(fmaf(s[i + 1], factor, -l.y));
        s[i + 2] = fast_exp2(fmaf(s[i + 2], factor, -l.x));
        s[i + 3] = fast_exp2(fmaf(s[i + 3], factor, -l.y));
    }
}

// Rounds a thread's scores i..i + 3 (two keys x two queries) to T, into their A fragment.
template <typename T, int COUNT>
__device__ __forceinline__ void weights_pack(const float (&x)[4], int i,
                                             uint32_t (&packed)[COUNT][4])
{
    packed[i / 8][i / 4 % 2 * 2] = pack<T>(x[0], x[1]);
    packed[i / 8][i / 4 % 2 * 2 + 1] = pack<T>(x[2], x[3]);
}

// P' from S' with a softcap: p16 gets P' packed, and S' is replaced by P' times the slope of the
// cap. weigh(i, x, lse) returns P of score i, and replaces its S, x, by P times the slope.
template <typename T, class C, class Weigh>
__device__ __forceinline__ void p_make_each(uint32_t lse, float (&s)[C::SCORES],
                                            uint32_t (&p16)[C::SCORES / 8][4], const Weigh &weigh)
{
    float4 four;
#pragma unroll
    for (int i = 0; i < C::SCORES; i += 4) {
        float2 l = numbers_pair<C>(lse, i, four);
        float weights[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            weights[k] = weigh(i + k, s[i + k], k % 2 ? l.y : l.x);
        weights_pack<T>(weights, i, p16);
    }
}

// P' with the shortest series. All scores are within its reach, and visible.
template <typename T, class C>
__device__ __forceinline__ void p_make_close(const struct cap_series &series, uint32_t lse,
                                             float (&s)[C::SCORES],
                                             uint32_t (&p16)[C::SCORES / 8][4])
{
    p_make_each<T, C>(lse, s, p16, [&](int, float &x, float l) {
        float z = x * x, p = fast_exp2(fmaf(x, series_of(series.close, z), -l));
        x = p * fmaf(z, series_of(series.close_slope, z), 1);
        return p;
    });
}

// P' with a longer series, `terms`. All scores are within its reach. MASKED: the step has masks.
template <typename T, class C, bool MASKED, int TERMS>
__device__ __forceinline__ void
p_make_within(const struct sm90_step *step, const float (&terms)[TERMS], float cap, uint32_t lse,
              float (&s)[C::SCORES], uint32_t (&p16)[C::SCORES / 8][4])
{
    const scores_seen<C> seen(step);
    const float less = __fdividef(1, cap);
    p_make_each<T, C>(lse, s, p16, [&](int i, float &x, float l) {
        float logit = x * series_of(terms, x * x), t = logit * less, p = fast_exp2(logit - l);
        if (MASKED && !seen(i))
            p = 0;
        x = p * fmaf(-t, t, 1);
        return p;
    });
}

// P' for scores of any magnitude.
template <typename T, class C>
__device__ __forceinline__ void p_make_far(const struct backward_params &p,
                                           const struct sm90_step *step, uint32_t lse,
                                           float (&s)[C::SCORES], uint32_t (&p16)[C::SCORES / 8][4])
{
    const scores_seen<C> seen(step);
    p_make_each<T, C>(lse, s, p16, [&](int i, float &x, float l) {
        float slope, t = cap_tanh_far(x * p.product_factor, &slope);
        float weight = fast_exp2(fmaf(t, p.cap_factor, -l));
        if (!seen(i))
            weight = 0;
        x = weight == 0 ? 0 : weight * slope;
        return weight;
    });
}

// P' from S' with a softcap. Each warp takes the shortest series that reaches all its scores.
template <typename T, class C>
__device__ __forceinline__ void
p_make_capped(const struct backward_params &p, const struct sm90_step *step, int stage,
              uint32_t shared, float (&s)[C::SCORES], uint32_t (&p16)[C::SCORES / 8][4])
{
    const struct cap_series &series = p.cap_series;
    const float cap = p.cap_factor, reach = products_reach(s);
    const uint32_t lse = lse_place<C>(stage, shared);
    const bool masked = step->keys != 0;
    if (!masked && __all_sync(0xffffffffu, reach <= series.reach[0])) {
        p_make_close<T, C>(series, lse, s, p16);
    } else if (__all_sync(0xffffffffu, reach <= series.reach[1])) {
        if (masked)
            p_make_within<T, C, true>(step, series.middle, cap, lse, s, p16);
        else
            p_make_within<T, C, false>(step, series.middle, cap, lse, s, p16);
    } else if (__all_sync(0xffffffffu, reach <= series.reach[2])) {
        p_make_within<T, C, true>(step, series.near, cap, lse, s, p16);
    } else {
        p_make_far<T, C>(p, step, lse, s, p16);
    }
}

// P' from S' with a bias, in place: exp2(factor S' + log2(e) bias - LSE). Waits for BIAS_FULL and
// arrives at BIAS_EMPTY.
template <typename T, class C>
__device__ __forceinline__ void p_make_biased(float factor, const struct sm90_step *step, int group,
                                              unsigned number, uint32_t shared,
                                              float (&s)[C::SCORES])
{
    if (step->keys != 0)
        scores_hide<C>(step, factor < 0 ? INFINITY : -INFINITY, s);
    const uint32_t lse = lse_place<C>(number % C::STAGES, shared),
                   bias = bias_place<C>(group, shared);
    barrier_wait(shared + C::BIAS_FULL, number & 1);
    float4 four;
#pragma unroll
    for (int i = 0; i < C::SCORES; i += 8) {
        uint32_t pairs[4];
        matrices_load(bias + i / 8 * 16 * 128, pairs);
#pragma unroll
        for (int k = 0; k < 8; k += 2) {
            float2 l = numbers_pair<C>(lse, (i + k) / 4 * 4, four),
                   b = pair_floats<T>(pairs[k / 2]);
            s[i + k] = fast_exp2(fmaf(s[i + k], factor, fmaf(b.x, LOG2_E, -l.x)));
            s[i + k + 1] = fast_exp2(fmaf(s[i + k + 1], factor, fmaf(b.y, LOG2_E, -l.y)));
        }
    }
    warp_arrive(shared + C::BIAS_EMPTY);
}

// ---- dS -----------------------------------------------------------------------------------------

// With a bias: replaces dP' by P' (dP' - D), which dbias gets; packs this times the scale as dS',
// and P' (weights).
template <typename T, class C>
__device__ __forceinline__ void
ds_make_biased(float scale, int stage, uint32_t shared, const float (&weights)[C::SCORES],
               float (&dp)[C::SCORES], uint32_t (&p16)[C::SCORES / 8][4],
               uint32_t (&ds16)[C::SCORES / 8][4])
{
    const uint32_t delta = lse_place<C>(stage, shared) + (C::DELTA - C::LSE);
    float4 four;
#pragma unroll
    for (int i = 0; i < C::SCORES; i += 4) {
        float2 d = numbers_pair<C>(delta, i, four);
#pragma unroll
        for (int k = 0; k < 4; k++)
            dp[i + k] = weights[i + k] * (dp[i + k] - (k % 2 ? d.y : d.x));
        const float four[4] = {weights[i], weights[i + 1], weights[i + 2], weights[i + 3]};
        const float scaled[4] = {dp[i] * scale, dp[i + 1] * scale, dp[i + 2] * scale,
                                 dp[i + 3] * scale};
        weights_pack<T>(four, i, p16);
        weights_pack<T>(scaled, i, ds16);
    }
}

// Packs dS' from dP' and p, which is P', or with a softcap P' times the slope. Packs P', too,
// unless there is a softcap, which has done so: before this point registers are short.
template <typename T, class C>
__device__ __forceinline__ void ds_make(float scale, int stage, uint32_t shared,
                                        const float (&p)[C::SCORES], const float (&dp)[C::SCORES],
                                        uint32_t (&p16)[C::SCORES / 8][4],
                                        uint32_t (&ds16)[C::SCORES / 8][4])
{
    uint32_t delta = lse_place<C>(stage, shared) + (C::DELTA - C::LSE);
    float4 four;
#pragma unroll
    for (int i = 0; i < C::SCORES; i += 4) {
        float2 d = numbers_pair<C>(delta, i, four);
        float x[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float sum = k % 2 ? d.y : d.x, left = dp[i + k];
            x[k] = p[i + k] * (type_is_half<T>::value ? left - sum : fmaf(left, scale, -sum));
        }
        const float weights[4] = {p[i], p[i + 1], p[i + 2], p[i + 3]};
        if (!C::CAPPED)
            weights_pack<T>(weights, i, p16);
        weights_pack<T>(x, i, ds16);
    }
}

#endif
