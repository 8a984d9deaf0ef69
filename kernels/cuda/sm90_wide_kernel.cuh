// SPDX-License-Identifier: Apache-2.0
// Wide backward kernels on sm_90a for 16-bit types: for head dimensions above 128, and above 64
// with both bias and softcap. There, accumulators of dK and dV of 64 keys would be too many for the
// registers of a warpgroup.
//
// A thread block owns a tile of keys of one key head, with K and V in shared memory. Two consumer
// warpgroups split S and dP by keys, and dK, dV and dQ by elements, so P and dS go through shared
// memory. A step is one block of 64 queries of one head (' is the transpose):
//   S = Q K', dP = dO V', half of the keys in each warpgroup
//   P is computed and stored; both warpgroups synchronize
//   dV' += dO' P, while dS is computed and stored; both warpgroups synchronize
//   dQ = dS K, dK' += Q' dS; dK runs while dQ is staged
// The producer warpgroup has a warp that loads K, V, Q and dO, one that loads LSE and D (and the
// bias, where it is staged), and two that add dQ to memory.
#ifndef CPATTN_KERNELS_CUDA_SM90_WIDE_KERNEL_CUH
#define CPATTN_KERNELS_CUDA_SM90_WIDE_KERNEL_CUH

#include "kernels/cuda/sm90_wide_general.cuh"

// ---- P and dS -----------------------------------------------------------------------------------

// Sets masked scores to `hidden`, the infinity for which P is 0.
template <class C>
__device__ __forceinline__ void wide_hide(const struct sm90_step *step, int group, float hidden,
                                          float (&s)[C::SCORES])
{
    int key = group * C::KEYS + (int)((unsigned)thread_number() % 4 * 2);
    int first = (int)wide_query() - key;
#pragma unroll
    for (int h = 0; h < 2; h++, first += 8) {
        uint32_t seen =
            columns_between(first + step->low, min(first + step->high + 1, step->keys - key));
#pragma unroll
        for (int i = 0; i < C::SCORES; i += 4)
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (!(seen & 1u << (i / 2 + k)))
                    s[i + 2 * h + k] = hidden;
    }
}

// Turns S into P, in place.
template <class C>
__device__ __forceinline__ void wide_p_make(float factor, const struct sm90_step *step, int group,
                                            uint32_t lse_at, float (&s)[C::SCORES])
{
    float lse[2];
    wide_numbers(lse_at, lse);
    if (step->keys != 0)
        wide_hide<C>(step, group, factor < 0 ? INFINITY : -INFINITY, s);
#pragma unroll
    for (int i = 0; i < C::SCORES; i++)
        s[i] = fast_exp2(fmaf(s[i], factor, -lse[i / 2 % 2]));
}

// Turns S into P, in place, with a bias from shared memory. Waits for BIAS_FULL; each warp arrives
// at BIAS_EMPTY when it has read the bias.
template <typename T, class C>
__device__ __forceinline__ void wide_p_biased(float factor, const struct sm90_step *step, int group,
                                              unsigned number, uint32_t lse_at, uint32_t shared,
                                              float (&s)[C::SCORES])
{
    // This lane's row of the four matrices of ldmatrix: two blocks of 8 keys by two of 8 queries.
    const unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    const unsigned row = thread / WARP_LANES * 16 + lane % 16;
    float lse[2];
    wide_numbers(lse_at, lse);
    if (step->keys != 0)
        wide_hide<C>(step, group, factor < 0 ? INFINITY : -INFINITY, s);
    barrier_wait(shared + C::BIAS_FULL, number & 1);
#pragma unroll
    for (int i = 0; i < C::SCORES; i += 8) {
        // With an odd number of key blocks the last ldmatrix has only one, and loads it twice.
        const unsigned block = group * C::KEYS / 8 + i / 4;
        const unsigned other = i + 8 <= C::SCORES ? lane / 16 : 0;
        uint32_t pairs[4];
        matrices_load_rows(shared + C::BIAS + bias_offset<C>(row, block + other), pairs);
#pragma unroll
        for (int k = 0; k < 8 && i + k < C::SCORES; k += 2) {
            const float2 b = pair_floats<T>(pairs[k / 2]);
            const float l = lse[k / 2 % 2];
            s[i + k] = fast_exp2(fmaf(s[i + k], factor, fmaf(b.x, LOG2_E, -l)));
            s[i + k + 1] = fast_exp2(fmaf(s[i + k + 1], factor, fmaf(b.y, LOG2_E, -l)));
        }
    }
    warp_arrive(shared + C::BIAS_EMPTY);
}

// Turns dP into P (dP - D), the gradient of the bias, in place, and sets `ds` to dS, which is
// `scale` times that.
template <typename T, class C>
__device__ __forceinline__ void wide_ds_biased(float scale, uint32_t delta_at,
                                               const float (&p)[C::SCORES], float (&dp)[C::SCORES],
                                               float (&ds)[C::SCORES])
{
    float delta[2];
    wide_numbers(delta_at, delta);
#pragma unroll
    for (int i = 0; i < C::SCORES; i++) {
        dp[i] = p[i] * (dp[i] - delta[i / 2 % 2]);
        ds[i] = dp[i] * scale;
    }
}

// Turns dP into dS, in place. With softcap, `p` is P times the slope of the cap. D comes times
// early_scale().
template <typename T, class C>
__device__ __forceinline__ void wide_ds_make(float scale, uint32_t delta_at,
                                             const float (&p)[C::SCORES], float (&dp)[C::SCORES])
{
    float delta[2];
    wide_numbers(delta_at, delta);
#pragma unroll
    for (int i = 0; i < C::SCORES; i++) {
        float sum = delta[i / 2 % 2];
        dp[i] = p[i] * (type_is_half<T>::value ? dp[i] - sum : fmaf(dp[i], scale, -sum));
    }
}

// Stores P or dS of a warpgroup in shared memory, as swizzled rows of keys, 64 queries wide.
template <typename T, class C>
__device__ __forceinline__ void wide_store(const float (&x)[C::SCORES], int group, uint32_t to)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    // This lane's row of the first four matrices: two blocks of 8 keys by two of 8 queries.
    uint32_t at = to + group * C::KEYS * 128 +
                  panel_offset(0, lane % 8 + lane / 16 * 8, thread / WARP_LANES * 2 + lane / 8 % 2);
#pragma unroll
    for (int i = 0; i + 8 <= C::SCORES; i += 8) {
        uint32_t pairs[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            pairs[k] = pack<T>(x[i + 2 * k], x[i + 2 * k + 1]);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                     :
                     : "r"(at + i / 8 * 16 * 128), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]),
                       "r"(pairs[3])
                     : "memory");
    }
    if (C::SCORES % 8 != 0) {
        const int i = C::SCORES / 8 * 8;
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                     :
                     : "r"(at + i / 8 * 16 * 128), "r"(pack<T>(x[i], x[i + 1])),
                       "r"(pack<T>(x[i + 2], x[i + 3]))
                     : "memory");
    }
    shared_fence();
}

// ---- products -----------------------------------------------------------------------------------

// Begins and commits S or dP: the block's 64 rows of Q or dO times the warpgroup's rows of K or V,
// over PANELS panels of elements.
template <typename T, class C, int PANELS>
__device__ __forceinline__ void wide_scores_begin(uint32_t queries, uint32_t keys,
                                                  float (&s)[C::SCORES])
{
    product_of<T, PANELS * 4, false>(s, along<C::Q_PANEL>{operand_rows(queries)},
                                     along<C::KV_PANEL>{operand_rows(keys)});
    product_commit();
}

// Begins a panel of dV' or dK' (elements x keys): adds the transposed panel of dO or Q at `queries`
// (queries x elements) times P or dS at `weights`. The caller commits.
template <typename T, class C>
__device__ __forceinline__ void wide_keys_begin(float (&gradient)[C::GRADIENT], uint32_t queries,
                                                uint32_t weights)
{
    const uint64_t a = operand_columns(queries, C::Q_PANEL), b = operand_rows(weights);
#pragma unroll
    for (int i = 0; i < C::Q_ROWS / 16; i++)
        product<T, C::TILE>::template ss<true, false>(gradient, across{a}(i),
                                                      along<C::KV_PANEL>{b}(i), true);
}

// Begins and commits PANELS panels of dQ = dS K (queries x elements).
template <typename T, class C, int PANELS>
__device__ __forceinline__ void wide_dq_begin(float (&dq)[PANELS * 32], uint32_t ds, uint32_t k)
{
    const uint64_t a = operand_columns(ds, C::P_BYTES), b = operand_columns(k, C::KV_PANEL);
#pragma unroll
    for (int i = 0; i < PANELS * 32; i++)
        asm volatile("" : "=f"(dq[i])); // the first product does not read dq
#pragma unroll
    for (int i = 0; i < C::TILE / 16; i++)
        product<T, PANELS * 64>::template ss<true, true>(dq, across{a}(i), across{b}(i), i > 0);
    product_commit();
}

// ---- consumers ----------------------------------------------------------------------------------

template <int COUNT, int SIZE>
static __device__ __forceinline__ void gradients_settle(float (&gradients)[COUNT][SIZE])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        registers_settle(gradients[i]);
}

// Computes dQ of a step in passes of AT_ONCE panels, and adds to dK, whose products run while dQ is
// staged. Each pass waits for OUT_EMPTY, stages dQ and arrives at the named barrier of the warp
// that adds it. `q` is the shared address of the step's Q. Calls meanwhile() once the products of
// the first pass run.
template <typename T, class C, class R, class F>
__device__ __forceinline__ void wide_dq_step(const struct backward_params &p, unsigned number,
                                             int group, uint32_t q, uint32_t shared,
                                             float (&dk)[R::DK][C::GRADIENT], F meanwhile)
{
    constexpr int AT_ONCE = wide_pass<C, R>::PANELS;
    int barrier = WIDE_BARRIER_OUT + group + (C::ALTERNATING && p.taken && number % 2 ? 2 : 0);
#pragma unroll
    for (int panel = 0; panel < R::DQ; panel += AT_ONCE) {
        float dq[AT_ONCE * 32];
        int x = R::dq_first + panel;
        bool last = panel + AT_ONCE >= R::DQ;
        product_begin();
        wide_dq_begin<T, C, AT_ONCE>(dq, shared + C::DS, shared + C::K + x * C::KV_PANEL);
#pragma unroll
        for (int i = panel; i < (last ? R::DK : panel + AT_ONCE); i++)
            wide_keys_begin<T, C>(dk[i], q + (R::dk_first + i) * C::Q_PANEL, shared + C::DS);
        product_commit();
        if (panel == 0)
            meanwhile();
        product_wait<1>();
        registers_settle(dq);
        unsigned pass = number * (R::DQ / AT_ONCE) + panel / AT_ONCE;
        barrier_wait(shared + C::OUT_EMPTY + group * 8, pass - 1 & 1);
        wide_dq_stage<C>(dq, late_scale<T>(p), wide_out<C>(group, shared));
        threads_arrive(barrier, DQ_THREADS);
        product_wait<0>();
    }
}

// One step of a consumer warpgroup.
template <typename T, class C, class R>
__device__ __forceinline__ void
wide_step(const struct backward_params &p, unsigned number, int group, char *memory,
          uint32_t shared, float (&dk)[R::DK][C::GRADIENT], float (&dv)[R::DV][C::GRADIENT])
{
    const struct sm90_step *step = (const struct sm90_step *)(memory + C::STEP) + number % C::STEPS;
    unsigned stage = number % C::STAGES, d_out_stage = number % C::DO_STAGES;
    uint32_t q = shared + C::Q + stage * C::Q_BYTES;
    uint32_t d_out = shared + C::DO + d_out_stage * C::DO_BYTES;
    uint32_t keys = shared + group * C::KEYS * 128,
             numbers = shared + C::LSE + stage * C::Q_ROWS * 4;
    float dp[C::SCORES];
    {
        // BOTH: the bias until P is computed, then the slopes of the cap. CAPPED: these slopes.
        float s[C::SCORES], bias[C::BOTH || C::CAPPED ? C::SCORES : 1];
        barrier_wait(shared + C::FULL + stage * 8, number / C::STAGES & 1);
        product_begin();
        wide_scores_begin<T, C, C::QK_PANELS>(q, keys + C::K, s);
        barrier_wait(shared + C::DO_FULL + d_out_stage * 8, number / C::DO_STAGES & 1);
        product_begin();
        wide_scores_begin<T, C, C::V_PANELS>(d_out, keys + C::V, dp);
        if constexpr (C::BOTH)
            wide_bias_load<T, C>(p, step, group, bias);
        product_wait<1>();
        registers_settle(s);
        if constexpr (C::BIASED)
            wide_p_biased<T, C>(p.product_factor, step, group, number, numbers, shared, s);
        else if constexpr (C::BOTH)
            wide_p_general<C>(p, step, group, numbers, s, bias);
        else if constexpr (C::CAPPED)
            wide_p_capped<C>(p, step, group, numbers, s, bias);
        else
            wide_p_make<C>(p.product_factor, step, group, numbers, s);
        if (C::OUT_OVER_P) // dQ of the previous step lay there
            barrier_wait(shared + C::P_EMPTY, number - 1 & 1);
        wide_store<T, C>(s, group, shared + C::P);
        if constexpr (C::CAPPED)
#pragma unroll
            for (int i = 0; i < C::SCORES; i++)
                s[i] *= bias[i];
        threads_sync(WIDE_BARRIER_P, CONSUMER_THREADS);
        product_wait<0>();
        registers_settle(dp);
        product_begin();
#pragma unroll
        for (int i = 0; i < R::DV; i++)
            wide_keys_begin<T, C>(dv[i], d_out + (R::dv_first + i) * C::Q_PANEL, shared + C::P);
        product_commit();
        if constexpr (C::BIASED) {
            float ds[C::SCORES];
            wide_ds_biased<T, C>(early_scale<T>(p), numbers + (C::DELTA - C::LSE), s, dp, ds);
            wide_store<T, C>(ds, group, shared + C::DS);
        } else {
            if constexpr (C::BOTH)
                wide_ds_general<T, C>(p, step, group, numbers + (C::DELTA - C::LSE), s, bias, dp);
            else
                wide_ds_make<T, C>(p.scale, numbers + (C::DELTA - C::LSE), s, dp);
            wide_store<T, C>(dp, group, shared + C::DS);
        }
    }
    product_wait<0>();
    gradients_settle(dv);
    threads_sync(WIDE_BARRIER_DS, CONSUMER_THREADS);
    warp_arrive(shared + C::DO_EMPTY + d_out_stage * 8);
    wide_dq_step<T, C, R>(p, number, group, q, shared, dk, [&] {
        if constexpr (C::BIASED)
            if (p.dbias)
                wide_dbias_add<C>(p, step, group, dp);
    });
    gradients_settle(dk);
    warp_arrive(shared + C::EMPTY + stage * 8);
}

// A consumer warpgroup: all steps, then dK and dV.
template <typename T, class C, class R>
__device__ __forceinline__ void wide_consume(const struct sm90_backward_params &params,
                                             unsigned steps, int group, char *memory,
                                             uint32_t shared)
{
    const struct backward_params &p = params.all;
    float dk[R::DK][C::GRADIENT], dv[R::DV][C::GRADIENT];
#pragma unroll
    for (int i = 0; i < C::GRADIENT; i++) {
#pragma unroll
        for (int panel = 0; panel < R::DK; panel++)
            dk[panel][i] = 0;
#pragma unroll
        for (int panel = 0; panel < R::DV; panel++)
            dv[panel][i] = 0;
    }
    barrier_wait(shared + C::KV_FULL, 0);
#pragma unroll 1
    for (unsigned number = 0; number < steps; number++)
        wide_step<T, C, R>(p, number, group, memory, shared, dk, dv);
    const struct sm90_work work = work_of(p, (const struct backward_unit *)(memory + C::UNIT));
    wide_keys_finish<T, C, R>(params, work, group, dk, dv, shared);
}

// ---- kernel -------------------------------------------------------------------------------------

// Takes the thread block's work and initializes the mbarriers. Called by the whole block.
template <class C>
__device__ __forceinline__ void wide_begin(const struct sm90_backward_params &p, char *memory,
                                           uint32_t shared)
{
    const int warps = CONSUMER_THREADS / WARP_LANES;
    if (threadIdx.x == 0) {
        *(struct backward_unit *)(memory + C::UNIT) = unit_take(p.all);
        for (int i = 0; i < C::STAGES; i++) {
            barrier_init(shared + C::FULL + i * 8, 1 + WARP_LANES); // Q; LSE and D
            barrier_init(shared + C::EMPTY + i * 8, warps);
        }
        for (int i = 0; i < C::DO_STAGES; i++) {
            barrier_init(shared + C::DO_FULL + i * 8, 1);
            barrier_init(shared + C::DO_EMPTY + i * 8, warps);
        }
        for (int i = 0; i < C::STEPS; i++)
            barrier_init(shared + C::TOLD + i * 8, 1);
        barrier_init(shared + C::OUT_EMPTY, 1);
        barrier_init(shared + C::OUT_EMPTY + 8, 1);
        barrier_init(shared + C::P_EMPTY, 1);
        barrier_init(shared + C::BIAS_FULL, 2 * WARP_LANES);
        barrier_init(shared + C::BIAS_EMPTY, warps);
        barrier_init(shared + C::KV_FULL, 2);
        barrier_init_fence();
    }
    __syncthreads();
}

template <typename T, class C>
__global__ void __launch_bounds__(SM90_BACKWARD_THREADS, 1)
    sm90_wide_run(const __grid_constant__ struct sm90_backward_params p)
{
    extern __shared__ __align__(1024) char memory[];
    uint32_t shared = shared_address(memory);
    wide_begin<C>(p, memory, shared);
    const struct sm90_work work = work_of(p.all, (const struct backward_unit *)(memory + C::UNIT));
    if (work.steps == 0)
        return;
    int group = (int)__reduce_min_sync(0xffffffffu, threadIdx.x / GROUP_THREADS);
    if (group == 0) {
        registers_release<24>();
        int warp = (int)threadIdx.x / WARP_LANES;
        if (warp == 0)
            wide_vectors_load<C>(p, work, shared);
        else if (warp == 1)
            wide_numbers_load<T, C>(p, work, memory, shared);
        else if (C::ALTERNATING && p.all.taken)
            wide_dq_add_ordered<C>(p, warp - 2, work.steps, memory, shared);
        else if (warp == 2)
            wide_dq_add_all<C, wide_role<C, 0>>(p, 0, work.steps, memory, shared);
        else
            wide_dq_add_all<C, wide_role<C, 1>>(p, 1, work.steps, memory, shared);
    } else if (group == 1) {
        registers_acquire<240>();
        wide_consume<T, C, wide_role<C, 0>>(p, (unsigned)work.steps, 0, memory, shared);
    } else {
        registers_acquire<240>();
        wide_consume<T, C, wide_role<C, 1>>(p, (unsigned)work.steps, 1, memory, shared);
    }
}

// ---- instantiations -----------------------------------------------------------------------------

// Without begins_queries: to write dQ in its first turn, instead of adding, would take registers
// that the warps which add dQ do not have.
template <typename T, class C> constexpr struct sm90_backward_kernel sm90_wide_instance()
{
    return {sm90_wide_run<T, C>, C::Q_ROWS, C::TILE, C::DQK, C::Q_ROWS, C::TILE,
            C::BIAS_BOX,         C::BYTES,  false};
}

template <typename T> const struct sm90_backward_kernel *sm90_wide_16(int d_qk, int d_v)
{
    typedef sm90_wide_config<192, 128, 96, 2, 2, false, WIDE_BARE> narrow;
    typedef sm90_wide_config<256, 256, 80, 1, 1, true, WIDE_BARE> wide;
    static const struct sm90_backward_kernel instances[] = {sm90_wide_instance<T, narrow>(),
                                                            sm90_wide_instance<T, wide>()};
    return &instances[d_qk > narrow::DQK || d_v > narrow::DV];
}

template <typename T> const struct sm90_backward_kernel *sm90_wide_capped_16(int d_qk, int d_v)
{
    typedef sm90_wide_config<192, 128, 96, 2, 2, false, WIDE_CAPPED> narrow;
    typedef sm90_wide_config<256, 256, 80, 1, 1, true, WIDE_CAPPED> wide;
    static const struct sm90_backward_kernel instances[] = {sm90_wide_instance<T, narrow>(),
                                                            sm90_wide_instance<T, wide>()};
    return &instances[d_qk > narrow::DQK || d_v > narrow::DV];
}

// At head dimension 256, the tiles are smaller, to make room for the bias in shared memory.
template <typename T> const struct sm90_backward_kernel *sm90_wide_biased_16(int d_qk, int d_v)
{
    typedef sm90_wide_config<192, 128, 96, 2, 2, false, WIDE_BIASED, 32> narrow;
    typedef sm90_wide_config<256, 256, 64, 1, 1, false, WIDE_BIASED, 64> wide;
    static const struct sm90_backward_kernel instances[] = {sm90_wide_instance<T, narrow>(),
                                                            sm90_wide_instance<T, wide>()};
    return &instances[d_qk > narrow::DQK || d_v > narrow::DV];
}

// Tiles are smaller because the bias and the slopes of the cap take registers.
template <typename T> const struct sm90_backward_kernel *sm90_general_16(int d_qk, int d_v)
{
    typedef sm90_wide_config<128, 128, 112, 2, 1, false, WIDE_BOTH> square;
    typedef sm90_wide_config<192, 128, 80, 2, 2, false, WIDE_BOTH> narrow;
    typedef sm90_wide_config<256, 256, 64, 1, 1, false, WIDE_BOTH> wide;
    static const struct sm90_backward_kernel instances[] = {sm90_wide_instance<T, square>(),
                                                            sm90_wide_instance<T, narrow>(),
                                                            sm90_wide_instance<T, wide>()};
    if (d_v > narrow::DV || d_qk > narrow::DQK)
        return &instances[2];
    return &instances[d_qk > square::DQK];
}

#endif
