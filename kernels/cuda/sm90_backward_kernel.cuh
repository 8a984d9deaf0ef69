// SPDX-License-Identifier: Apache-2.0
// Backward for 16-bit types on sm_90a up to head dimension 128: wgmma, TMA, specialised warps.
//
// A thread block owns a tile of 128 keys of one key head, with K and V in shared memory. Each of
// two consumer warpgroups has 64 keys, with their dK and dV in registers. For each block of queries
// it computes:
//   S' = K Q', dP' = V dO' | P', dS' in registers, dS in shared memory | dV += P' dO, dK += dS' Q,
//   half of dQ = dS K
// The third warpgroup has one warp that loads K, V, Q, dO and the bias, one that loads LSE and D,
// both ahead of the consumers, and two that add dQ and the staged dbias to memory. Whole blocks and
// tiles travel by TMA. Short ones travel row by row, so that no element beside them is read or
// written.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_KERNEL_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_KERNEL_CUH

#include "kernels/cuda/sm90_backward_add.cuh"
#include "kernels/cuda/sm90_backward_scores.cuh"

// ---- consumers ----------------------------------------------------------------------------------

// Shared address of this lane's row, for matrices_store(), of the first four matrices of dS. dS has
// a row for each query and a panel of 64 keys for each warpgroup.
template <class C>
__device__ __forceinline__ uint32_t ds_place(int group, int stage, uint32_t shared)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    return shared + C::DS + stage * C::DS_BYTES + group * C::DS_PANEL +
           panel_offset(0, lane % 8 + lane / 16 * 8, thread / WARP_LANES * 2 + lane / 8 % 2);
}

// Stages dQ', times factor, in shared memory at `to`: accumulators are elements x queries, the
// staged boxes queries x elements. Called by a consumer warpgroup.
template <class C>
__device__ __forceinline__ void dq_stage(const float (&dq)[C::QUERIES], float factor, uint32_t to)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    unsigned x = thread / WARP_LANES * 16 + lane / 4, query = lane % 4 * 2;
    uint32_t at[4]; // for i % 4: query + i % 2, element + i / 2 * 8
#pragma unroll
    for (unsigned i = 0; i < 4; i++)
        at[i] = to + x / PANEL_FLOATS * C::DQ_PANEL + lane / 4 % 4 * 4 +
                panel_offset(0, query + i % 2, x % PANEL_FLOATS / 4 + i / 2 * 2);
#pragma unroll
    for (int i = 0; i < C::QUERIES; i++)
        asm volatile("st.shared.f32 [%0], %1;"
                     :
                     : "r"(at[i % 4] + i / 4 * 8 * 128), "f"(dq[i] * factor)
                     : "memory");
}

// The A fragments of the first HELD k-steps of a warpgroup's 64 rows of K or V, held in registers
// for all steps. Shared memory is busier than the tensor cores, so fewer reads from it save time.
template <class C> struct held_rows {
    uint32_t steps[C::HELD > 0 ? C::HELD : 1][4];

    __device__ __forceinline__ held_rows(uint32_t keys)
    {
        unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
#pragma unroll
        for (int i = 0; i < C::HELD; i++)
            load_fragment(steps[i],
                          keys + panel_offset(C::KV_PANEL, thread / WARP_LANES * 16 + lane % 16,
                                              i * 2 + lane / 16));
    }
};

// Issues D = A B over all elements and commits. A: 64 keys, the first k-steps from registers.
// B: a block of queries.
template <typename T, class C>
__device__ __forceinline__ void scores_product(const struct held_rows<C> &held, uint32_t keys,
                                               uint32_t queries, float (&d)[C::SCORES])
{
    const along<C::KV_PANEL> a{operand_rows(keys)};
    const along<C::Q_PANEL> b{operand_rows(queries)};
    // The first k-step overwrites D, see product_of().
#pragma unroll
    for (int i = 0; i < C::SCORES; i++)
        asm volatile("" : "=f"(d[i]));
#pragma unroll
    for (int i = C::HELD; i < C::D / 16; i++)
        product<T, C::Q_ROWS>::template ss<false, false>(d, a(i), b(i), i > C::HELD);
#pragma unroll
    for (int i = 0; i < C::HELD; i++)
        product<T, C::Q_ROWS>::template rs<false>(d, held.steps[i], b(i), true);
    product_commit();
}

// The k-steps of K and V of a warpgroup's keys that are held in registers.
template <class C> struct held_keys {
    struct held_rows<C> k, v;

    __device__ __forceinline__ held_keys(int group, uint32_t shared)
        : k(shared + C::K + group * GROUP_KEYS * 128), v(shared + C::V + group * GROUP_KEYS * 128)
    {
    }
};

// Issues S' and then dP' of a warpgroup's keys, a commit group each. q: shared address of the
// block's Q.
template <typename T, class C>
__device__ __forceinline__ void scores_begin(const struct held_keys<C> &held, int group, uint32_t q,
                                             uint32_t shared, float (&s)[C::SCORES],
                                             float (&dp)[C::SCORES])
{
    uint32_t keys = shared + group * GROUP_KEYS * 128;
    product_begin();
    scores_product<T, C>(held.k, keys + C::K, q, s);
    scores_product<T, C>(held.v, keys + C::V, q + (C::DO - C::Q), dp);
}

// Waits until the buffer for a warpgroup's dQ of a step is empty. Called by the warpgroup.
template <class C> __device__ __forceinline__ void dq_wait_empty(unsigned number, int group)
{
    if (number >= C::DQ_STAGES)
        threads_sync(BARRIER_DQ_EMPTY + dq_barrier(number - C::DQ_STAGES, group), DQ_THREADS);
}

// Stages dbias of a step for the warp that adds it, or, if it is not staged, adds it to memory.
// With C::DBIAS the barriers are used in every step. Called by a consumer warpgroup.
template <class C>
__device__ __forceinline__ void
dbias_hand_over(const struct backward_params &p, const struct sm90_step *step, unsigned number,
                int group, const float (&x)[C::SCORES], uint32_t shared)
{
    if (C::DBIAS) {
        if (number > 0)
            threads_sync(BARRIER_DBIAS_EMPTY + group, DQ_THREADS);
        if (step->dbias_staged)
            dbias_stage<C>(group, x, shared);
        shared_fence();
        threads_arrive(BARRIER_DBIAS_FULL + group, DQ_THREADS);
    }
    if (!C::DBIAS || !step->dbias_staged)
        dbias_add<C>(p, step, x, scores_seen<C>(step));
}

// Stores a warpgroup's dS' to shared memory, transposed to dS. All of it has been packed before:
// packing and storing piece by piece would spill registers.
template <class C>
__device__ __forceinline__ void ds_store(int group, int stage, uint32_t shared,
                                         const uint32_t (&ds16)[C::SCORES / 8][4])
{
    uint32_t ds = ds_place<C>(group, stage, shared);
#pragma unroll
    for (int i = 0; i < C::SCORES / 8; i++)
        matrices_store(ds + i * 16 * 128, ds16[i]);
    shared_fence();
}

// Issues dV += P' dO or dK += dS' Q and commits. `a`: fragments of P' or dS'. `block`:
// shared address of dO or Q.
template <typename T, class C>
__device__ __forceinline__ void keys_begin(float (&gradient)[C::KEYS],
                                           const uint32_t (&a)[C::SCORES / 8][4], uint32_t block)
{
    const uint64_t columns = operand_columns(block, C::Q_PANEL);
#pragma unroll
    for (int i = 0; i < C::Q_ROWS / 16; i++)
        product<T, C::D>::template rs<true>(gradient, a[i], across{columns}(i), true);
    product_commit();
}

// Issues dQ' and commits: for half of the elements, or, with one panel, for half of the queries.
template <typename T, class C>
__device__ __forceinline__ void dq_begin(int group, int stage, uint32_t shared,
                                         float (&dq)[C::QUERIES])
{
    uint32_t k = shared + C::K, ds = shared + C::DS + stage * C::DS_BYTES;
    if (C::PANELS == 2)
        k += group * C::KV_PANEL;
    else
        ds += group * C::DQ_ROWS * 128;
    const uint64_t k_columns = operand_columns(k, C::KV_PANEL), ds_rows = operand_rows(ds);
    product_of<T, KV_ROWS / 16, true>(dq, across{k_columns}, along<C::DS_PANEL>{ds_rows});
    product_commit();
}

// Stages dQ, times factor, and signals BARRIER_DQ_FULL to the warp that adds it. Called by a
// consumer warpgroup.
template <class C>
__device__ __forceinline__ void dq_hand_over(const struct backward_params &p, unsigned number,
                                             int group, float factor, const float (&dq)[C::QUERIES],
                                             uint32_t shared)
{
    dq_wait_empty<C>(number, group);
    dq_stage<C>(dq, factor, shared + dq_place<C>(number, group));
    shared_fence();
    threads_arrive(BARRIER_DQ_FULL + dq_barrier(number, group), DQ_THREADS);
}

// A step of a consumer warpgroup. dV is issued first and runs while the warpgroups exchange dS.
template <typename T, class C>
__device__ __forceinline__ void step_consume(const struct backward_params &p, unsigned number,
                                             int group, char *memory, uint32_t shared,
                                             const struct held_keys<C> &held, float (&dk)[C::KEYS],
                                             float (&dv)[C::KEYS])
{
    int stage = number % C::STAGES;
    uint32_t q = shared + C::Q + stage * C::Q_BYTES;
    float s[C::SCORES], dp[C::SCORES], dq[C::QUERIES];
    uint32_t p16[C::SCORES / 8][4], ds16[C::SCORES / 8][4];
    barrier_wait(shared + C::FULL + stage * 8, number / C::STAGES & 1);
    scores_begin<T, C>(held, group, q, shared, s, dp);
    product_wait<1>();
    registers_settle(s);
    const struct sm90_step *step = (const struct sm90_step *)(memory + C::STEP) + number % C::STEPS;
    if constexpr (C::CAPPED)
        p_make_capped<T, C>(p, step, stage, shared, s, p16);
    else if constexpr (C::GENERAL)
        p_make_biased<T, C>(p.product_factor, step, group, number, shared, s);
    else
        p_make<C>(p.product_factor, step, stage, shared, s);
    product_wait<0>();
    registers_settle(dp);
    if constexpr (C::GENERAL)
        ds_make_biased<T, C>(early_scale<T>(p), stage, shared, s, dp, p16, ds16);
    else
        ds_make<T, C>(p.scale, stage, shared, s, dp, p16, ds16);
    product_begin();
    keys_begin<T, C>(dv, p16, q + (C::DO - C::Q));
    const int ds_stage = number % C::DS_STAGES;
    if (C::DS_STAGES == 1)
        barrier_wait(shared + C::DS_EMPTY, number - 1 & 1);
    ds_store<C>(group, ds_stage, shared, ds16);
    if constexpr (C::GENERAL)
        if (p.dbias)
            dbias_hand_over<C>(p, step, number, group, dp, shared);
    threads_sync(BARRIER_DS, CONSUMER_THREADS);
    dq_begin<T, C>(group, ds_stage, shared, dq);
    keys_begin<T, C>(dk, ds16, q);
    product_wait<1>();
    registers_settle(dq);
    if (C::DS_STAGES == 1)
        warp_arrive(shared + C::DS_EMPTY);
    dq_hand_over<C>(p, number, group, late_scale<T>(p), dq, shared);
    product_wait<0>();
    registers_settle(dk);
    registers_settle(dv);
    warp_arrive(shared + C::EMPTY + stage * 8);
}

// A consumer warpgroup: all steps, then the addition of dK and dV to memory.
template <typename T, class C>
__device__ __forceinline__ void consume(const struct sm90_backward_params &p, unsigned steps,
                                        int group, char *memory, uint32_t shared)
{
    float dk[C::KEYS], dv[C::KEYS];
#pragma unroll
    for (int i = 0; i < C::KEYS; i++)
        dk[i] = dv[i] = 0;
    barrier_wait(shared + C::KV_FULL, 0);
    const struct held_keys<C> held(group, shared);
#pragma unroll 1
    for (unsigned number = 0; number < steps; number++)
        step_consume<T, C>(p.all, number, group, memory, shared, held, dk, dv);
    const struct sm90_work work = work_of(p.all, (const struct backward_unit *)(memory + C::UNIT));
    keys_add<T, C>(p, work, group, late_scale<T>(p.all), dk, dv, shared);
}

// ---- kernel -------------------------------------------------------------------------------------

// Takes the work and initializes the mbarriers. Called by the whole thread block.
template <class C>
__device__ __forceinline__ void begin(const struct sm90_backward_params &p, char *memory,
                                      uint32_t shared)
{
    if (threadIdx.x == 0) {
        *(struct backward_unit *)(memory + C::UNIT) = unit_take(p.all);
        for (int i = 0; i < C::STAGES; i++) {
            barrier_init(shared + C::FULL + i * 8, 1 + WARP_LANES); // Q and dO; LSE and D
            barrier_init(shared + C::EMPTY + i * 8, CONSUMER_THREADS / WARP_LANES);
        }
        for (int i = 0; i < C::STEPS; i++)
            barrier_init(shared + C::TOLD + i * 8, 1);
        barrier_init(shared + C::KV_FULL, 1);
        barrier_init(shared + C::BIAS_FULL, 2 * WARP_LANES);
        barrier_init(shared + C::BIAS_EMPTY, CONSUMER_THREADS / WARP_LANES);
        barrier_init(shared + C::DS_EMPTY, CONSUMER_THREADS / WARP_LANES);
        barrier_init_fence();
    }
    __syncthreads();
}

template <typename T, class C>
__global__ void __launch_bounds__(SM90_BACKWARD_THREADS, 1)
    sm90_backward_run(const __grid_constant__ struct sm90_backward_params p)
{
    extern __shared__ __align__(1024) char memory[];
    uint32_t shared = shared_address(memory);
    begin<C>(p, memory, shared);
    const struct sm90_work work = work_of(p.all, (const struct backward_unit *)(memory + C::UNIT));
    if (work.steps == 0)
        return;
    int group = (int)__reduce_min_sync(0xffffffffu, threadIdx.x / GROUP_THREADS);
    if (group == 0) {
        registers_release<24>();
        int warp = (int)threadIdx.x / WARP_LANES;
        if (warp == 0)
            vectors_load<C>(p, work, shared);
        else if (warp == 1)
            numbers_load<T, C>(p, work, memory, shared, step_ignore);
        else if (C::ORDERED)
            dq_add_ordered<C>(p, warp - 2, work.steps, memory, shared);
        else
            dq_add_all<C>(p, warp - 2, work.steps, memory, shared);
    } else {
        registers_acquire<240>();
        consume<T, C>(p, (unsigned)work.steps, group - 1, memory, shared);
    }
}

// ---- instantiations -----------------------------------------------------------------------------

typedef sm90_backward_config<64, 128, 2, false> sm90_backward_64;
typedef sm90_backward_config<64, 128, 2, true> sm90_backward_64_ordered;
typedef sm90_backward_config<128, 64, 2, false> sm90_backward_128;
typedef sm90_backward_config<128, 64, 2, true> sm90_backward_128_ordered;

template <typename T, class C> constexpr struct sm90_backward_kernel sm90_backward_instance()
{
    return {sm90_backward_run<T, C>,
            C::Q_ROWS,
            KV_ROWS,
            C::D,
            C::DQ_ROWS,
            GROUP_KEYS,
            C::BIAS_BOX,
            C::BYTES,
            C::ORDERED};
}

template <typename T> const struct sm90_backward_kernel *sm90_backward_16(int d, bool ordered)
{
    static const struct sm90_backward_kernel
        narrow = sm90_backward_instance<T, sm90_backward_64>(),
        narrow_ordered = sm90_backward_instance<T, sm90_backward_64_ordered>(),
        wide = sm90_backward_instance<T, sm90_backward_128>(),
        wide_ordered = sm90_backward_instance<T, sm90_backward_128_ordered>();
    if (d <= narrow.d)
        return ordered ? &narrow_ordered : &narrow;
    return ordered ? &wide_ordered : &wide;
}

// With a softcap the packed P' takes registers beside S' from early on. So at head dimension 64
// blocks have 96 queries, not 128.
template <typename T> const struct sm90_backward_kernel *sm90_capped_16(int d, bool ordered)
{
    static const struct sm90_backward_kernel
        narrow = sm90_backward_instance<T, sm90_backward_config<64, 96, 2, false, true>>(),
        narrow_ordered = sm90_backward_instance<T, sm90_backward_config<64, 96, 2, true, true>>(),
        wide = sm90_backward_instance<T, sm90_backward_config<128, 64, 2, false, true>>(),
        wide_ordered = sm90_backward_instance<T, sm90_backward_config<128, 64, 2, true, true>>();
    if (d <= narrow.d)
        return ordered ? &narrow_ordered : &narrow;
    return ordered ? &wide_ordered : &wide;
}

// At head dimension 128 the bias and the staged dbias leave no room for a second stage of dQ.
template <typename T> const struct sm90_backward_kernel *sm90_biased_16(int d, bool ordered)
{
    static const struct sm90_backward_kernel
        narrow = sm90_backward_instance<T, sm90_backward_config<64, 64, 2, false, false, true>>(),
        narrow_ordered =
            sm90_backward_instance<T, sm90_backward_config<64, 96, 1, true, false, true>>(),
        wide = sm90_backward_instance<T, sm90_backward_config<128, 64, 1, false, false, true>>(),
        wide_ordered =
            sm90_backward_instance<T, sm90_backward_config<128, 64, 1, true, false, true>>();
    if (d <= narrow.d)
        return ordered ? &narrow_ordered : &narrow;
    return ordered ? &wide_ordered : &wide;
}

#endif
