// SPDX-License-Identifier: Apache-2.0
// Forward for bf16 and fp16 on sm_90a. A thread block takes tiles of queries, each of one head. It
// runs one online softmax over all keys that a tile sees, then merges into the running result.
//
// One producer warp loads blocks of K and V into a ring of stages, and Q of the next tile while the
// last keys of a tile are processed. Consumer warpgroups compute 64 rows each. A warpgroup issues Q
// times the next K before the present weights times V. So the softmax of the next block runs while
// the tensor cores compute the latter. The warpgroups fill each other's gaps.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_KERNEL_CUH
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_KERNEL_CUH

#include "kernels/cuda/sm90_forward_softmax.cuh"

// ---- products -----------------------------------------------------------------------------------

// Issues scores = Q K' as one commit group. Called by a whole warpgroup.
template <class S>
__device__ __forceinline__ void scores_begin(struct sm90_state<S> &state, uint64_t q, uint64_t k)
{
    product_begin();
#pragma unroll
    for (int step = 0; step < S::DQK / 16; step++)
        product<typename S::T, S::N>::template ss<false, false>(
            state.scores, operand_step(q, step / 4 * S::Q_PANEL + step % 4 * 32),
            operand_step(k, step / 4 * S::KV_PANEL + step % 4 * 32), step > 0);
    product_commit();
}

// Issues out = weights V, or with `add` out += weights V, as one commit group. Called by a whole
// warpgroup.
template <class S>
__device__ __forceinline__ void out_begin(struct sm90_state<S> &state, uint64_t v, bool add)
{
    product_begin();
#pragma unroll
    for (int step = 0; step < S::N / 16; step++)
        product<typename S::T, S::DV>::template rs<true>(
            state.out, state.weights[step], operand_step(v, step * 2048), add || step > 0);
    product_commit();
}

// ---- a tile -------------------------------------------------------------------------------------

// A consumer warpgroup, as one of its threads sees it.
struct sm90_group {
    int index;
    int row; // first row of this thread in the tile; its second one is row + 8
};

// Position of a warpgroup in the keys of a tile.
struct sm90_walk {
    int fragment;        // index in the work list
    int key;             // first key of the block, counted in the fragment
    int keys, low, high; // of the fragment
};

static __device__ __forceinline__ void walk_enter(struct sm90_walk *walk,
                                                  const struct work_fragment &fragment)
{
    walk->keys = fragment.keys;
    walk->low = fragment.low;
    walk->high = fragment.high;
}

// Rows of the block's V that hold values. Below N only if the block reaches beyond those stored.
template <class S>
__device__ __forceinline__ int walk_rows(const struct sm90_walk &walk,
                                         const struct work_fragment *fragments)
{
    return walk.key + S::N >= walk.keys ? fragments[walk.fragment].stored - walk.key : S::N;
}

// Advances to the next block of the tile. Returns walk_rows() of the block it leaves.
template <class S>
__device__ __forceinline__ int walk_next(struct sm90_walk *walk,
                                         const struct work_fragment *fragments)
{
    int rows = walk_rows<S>(*walk, fragments);
    walk->key += S::N;
    if (walk->key >= walk->keys) {
        walk->key = 0;
        walk_enter(walk, fragments[++walk->fragment]);
    }
    return rows;
}

// The blocks [begin, end) of a tile that a warpgroup computes, counted across the fragments. Its
// rows see none of the other blocks. 0, 0: no block.
struct sm90_span {
    int begin, end;
};

template <class S>
__device__ __forceinline__ struct sm90_span group_span(const struct sm90_task *task, int group)
{
    int first_row = group * GROUP_ROWS, blocks = task->tile.blocks;
    int last_row = min(first_row + GROUP_ROWS, task->tile.rows) - 1;
    int first_blocks = (task->first.keys + S::N - 1) / S::N;
    int last_blocks = (task->last.keys + S::N - 1) / S::N;
    int unseen = max(task->first.low + first_row, 0) / S::N;
    int seen = max(task->last.high + last_row + S::N - 1, 0) / S::N;
    int begin = min(unseen, first_blocks), end = blocks - last_blocks + min(seen, last_blocks);
    if (last_row < first_row || begin >= end)
        begin = end = 0;
    return {(int)warp_uniform((uint32_t)begin), (int)warp_uniform((uint32_t)end)};
}

// Arrives once for the warp. All its lanes must be done with the stage: call __syncwarp() before,
// unless a .sync instruction precedes.
static __device__ __forceinline__ void warp_arrive(uint32_t barrier)
{
    if (threadIdx.x % WARP_LANES == 0)
        barrier_arrive(barrier);
}

// Positions of a warpgroup in the rings of stages. `keys` is for K and V.
template <class S> struct sm90_stages {
    struct sm90_ring<S::STAGES> keys;
    struct sm90_ring<S::BIAS ? S::BIAS_STAGES : 1> bias;
};

// Waits for the next `count` blocks and releases their stages unused.
template <class S>
__device__ __forceinline__ void blocks_skip(uint32_t shared, int count,
                                            struct sm90_stages<S> *stages)
{
    struct sm90_ring<S::STAGES> *ring = &stages->keys;
    for (; count > 0; count--) {
        int at = 8 * ring->place;
        barrier_wait(shared + S::K_FULL + at, ring->phase);
        barrier_wait(shared + S::V_FULL + at, ring->phase);
        __syncwarp();
        warp_arrive(shared + S::K_EMPTY + at);
        warp_arrive(shared + S::V_EMPTY + at);
        ring->next();
        if (S::BIAS) {
            barrier_wait(shared + S::BIAS_FULL + 8 * stages->bias.place, stages->bias.phase);
            __syncwarp();
            warp_arrive(shared + S::BIAS_EMPTY + 8 * stages->bias.place);
            stages->bias.next();
        }
    }
}

// Zeroes rows [rows, N) of a block of V. They may hold NaN, and 0 * NaN is NaN. Called by all
// threads of a warpgroup, for each warpgroup by itself; ends with named barrier 1 + group.
template <class S> __device__ __forceinline__ void values_clear(uint32_t v, int rows, int group)
{
    const int chunks = SM90_PANEL_ROW_BYTES / CHUNK_BYTES;
    for (int i = rows * chunks + (int)threadIdx.x % GROUP_THREADS; i < S::N * chunks;
         i += GROUP_THREADS)
#pragma unroll
        for (int panel = 0; panel < S::V_PANELS; panel++)
            asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(v + panel * S::KV_PANEL +
                                                                          i * CHUNK_BYTES),
                         "r"(0)
                         : "memory");
    shared_fence();
    threads_sync(1 + group, GROUP_THREADS);
}

// True if some row of the warpgroup does not see every key of the block.
template <class S>
__device__ __forceinline__ bool block_is_masked(const struct sm90_walk &walk,
                                                const struct sm90_group &group)
{
    int first = group.index * GROUP_ROWS, last = first + GROUP_ROWS - 1;
    return walk.key < walk.low + last || walk.key + S::N > min(walk.high + first, walk.keys);
}

template <class S> __device__ __forceinline__ uint64_t keys_operand(uint32_t shared, int place)
{
    return operand_rows(shared + S::K + place * S::K_BYTES);
}

template <class S> __device__ __forceinline__ uint64_t values_operand(uint32_t shared, int place)
{
    return operand_columns(shared + S::V + place * S::V_BYTES, S::KV_PANEL);
}

// Waits for a block of V, and zeroes its rows from `rows` on. Called by a whole warpgroup.
template <class S>
__device__ __forceinline__ void values_wait(uint32_t shared, const struct sm90_ring<S::STAGES> &at,
                                            int rows, int group)
{
    barrier_wait(shared + S::V_FULL + 8 * at.place, at.phase);
    if (rows < S::N)
        values_clear<S>(shared + S::V + at.place * S::V_BYTES, rows, group);
}

// True if the bias of the next block has arrived. Does not wait.
template <class S>
__device__ __forceinline__ bool bias_look(uint32_t shared, const struct sm90_stages<S> *stages)
{
    return S::BIAS &&
           barrier_test(shared + S::BIAS_FULL + 8 * stages->bias.place, stages->bias.phase);
}

// Adds the bias of the next block to the scores and releases its stage. Waits for the bias unless
// bias_look() returned true (`there`).
template <class S>
__device__ __forceinline__ void scores_add_bias(struct sm90_state<S> &state, uint32_t shared,
                                                bool there, int row, float factor,
                                                struct sm90_stages<S> *stages)
{
    int at = 8 * stages->bias.place;
    if (!there)
        barrier_wait(shared + S::BIAS_FULL + at, stages->bias.phase);
    scores_bias<S>(state.scores, shared + S::BIAS_BLOCK + stages->bias.place * S::BIAS_BYTES, row,
                   factor);
    __syncwarp();
    warp_arrive(shared + S::BIAS_EMPTY + at);
    stages->bias.next();
}

// The stages that the products after a softmax need: K of the next block, V of the present one.
// look() tests their barriers before the exponentials, which hide the latency of the tests.
template <class S> struct sm90_ahead {
    struct sm90_ring<S::STAGES> keys, values;
    bool keys_there, values_there;

    __device__ __forceinline__ void look(uint32_t shared)
    {
        values_there = barrier_test(shared + S::V_FULL + 8 * values.place, values.phase);
        keys_there = barrier_test(shared + S::K_FULL + 8 * keys.place, keys.phase);
    }
};

// Turns logits into weights: raises the maxima, tests the barriers of `ahead`, computes the
// exponentials. Returns the result of maxima_raise().
template <class S, class Logit>
__device__ __forceinline__ bool block_weigh_as(struct sm90_state<S> &state, const Logit &logit,
                                               uint32_t shared, struct sm90_ahead<S> &ahead,
                                               float shrink[2])
{
    bool grown = maxima_raise<S>(state, logit, shrink);
    ahead.look(shared);
    scores_weigh<S>(state, logit);
    return grown;
}

// Turns the scores of a block into weights: softcap, bias, mask, softmax. Without bias and mask, a
// warp with all scores within the reach of a series computes softcap as part of the softmax.
// Returns the result of maxima_raise(), or false if it was not called.
template <class S>
__device__ __forceinline__ bool
block_weigh(struct sm90_state<S> &state, const struct forward_work &work, uint32_t shared,
            const struct sm90_walk &walk, const struct sm90_group &group, bool bias_there,
            struct sm90_stages<S> *stages, struct sm90_ahead<S> &ahead, float shrink[2])
{
    const bool masked = block_is_masked<S>(walk, group);
    if (S::CAP && !S::BIAS && !masked) {
        const struct cap_series &series = work.cap_series;
        float reach = scores_reach<S>(state.scores);
        if (__all_sync(0xffffffffu, reach <= series.reach[0]))
            return block_weigh_as<S>(state, logit_series<2>{series.close}, shared, ahead, shrink);
        if (__all_sync(0xffffffffu, reach <= series.reach[1]))
            return block_weigh_as<S>(state, logit_series<3>{series.middle}, shared, ahead, shrink);
        if (__all_sync(0xffffffffu, reach <= series.reach[2]))
            return block_weigh_as<S>(state, logit_series<6>{series.near}, shared, ahead, shrink);
    }
    const struct logit_linear logit = {S::CAP ? 1 : work.factor};
    if (S::CAP)
        scores_cap<S>(state.scores, work.factor, work.cap);
    if constexpr (S::BIAS)
        scores_add_bias<S>(state, shared, bias_there, group.row, work.bias_factor, stages);
    bool grown = false;
    if (masked || !S::GUESS || state.guess < GUESS_NOW) {
        if (masked)
            scores_mask<S>(state, walk.low, walk.high, walk.keys, walk.key, group.row);
        grown = maxima_raise<S>(state, logit, shrink);
        if (state.guess == GUESS_LATER && maxima_are_set<S>(state))
            state.guess = GUESS_NOW;
    }
    ahead.look(shared);
    scores_weigh<S>(state, logit);
    return grown;
}

// Computes the blocks of `span`, at least one. stages->keys stands at the first. The last product
// with V is still pending on return; the caller waits for it, then arrives at the barrier that is
// returned. `q`: shared address of the warpgroup's rows of Q.
//
// Each iteration begins with two pending commit groups: the scores of its block, and weights times
// V of the block before. Little work is left between the end of the latter and the next products:
// the warpgroups are likely to be there at the same time, and the tensor cores are idle then.
template <class S>
__device__ __forceinline__ uint32_t span_compute(struct sm90_state<S> &state,
                                                 const struct forward_work &work, uint32_t shared,
                                                 const struct sm90_task *task, uint32_t q,
                                                 const struct sm90_span &span,
                                                 const struct sm90_group &group,
                                                 struct sm90_stages<S> *stages)
{
    float shrink[2];
    struct sm90_walk walk = {task->tile.fragment, span.begin * S::N, 0, 0, 0};
    walk_enter(&walk, task->first);
    if (walk.key >= walk.keys)
        walk_next<S>(&walk, work.fragments);
    // Uniform for the compiler: operands need not go through per-thread registers.
    struct sm90_ring<S::STAGES> ring = {
        (int)warp_uniform((uint32_t)stages->keys.place), warp_uniform(stages->keys.phase)
    };
    const uint64_t q_operand = operand_rows(warp_uniform(q));
    barrier_wait(shared + S::K_FULL + 8 * ring.place, ring.phase);
    scores_begin<S>(state, q_operand, keys_operand<S>(shared, ring.place));
    product_commit();     // an empty group: there is no V yet
    uint32_t weighed = 0; // V_EMPTY of the block before
    for (int block = span.begin;; block++) {
        const bool first = block == span.begin, last = block + 1 == span.end;
        const bool bias_there = bias_look<S>(shared, stages);
        product_wait<1>();
        registers_settle(state.scores);
        warp_arrive(shared + S::K_EMPTY + 8 * ring.place);
        const struct sm90_ring<S::STAGES> values = ring;
        ring.next();
        struct sm90_ahead<S> ahead = {
            ring, values, false, false
        };
        const bool small = !S::GUESS || sums_are_small<S>(state);
        bool grown =
            block_weigh<S>(state, work, shared, walk, group, bias_there, stages, ahead, shrink);
        registers_settle(state.scores);
        registers_settle(state.sum);
        // Usually both stages are full and the fragment continues: one test, no wait. The branch
        // keeps the compiler from moving product_wait() up. Otherwise the softmax would run after
        // the product with V instead of during it.
        if (small && !last && walk.key + S::N < walk.keys && ahead.values_there &&
            ahead.keys_there) {
            walk.key += S::N;
        } else {
            if (!small) {
                sums_shrink<S>(state, grown, shrink);
                grown = true;
                state.guess = GUESS_WILD;
            }
            int rows =
                last ? walk_rows<S>(walk, work.fragments) : walk_next<S>(&walk, work.fragments);
            values_wait<S>(shared, values, rows, group.index);
            if (!last)
                barrier_wait(shared + S::K_FULL + 8 * ring.place, ring.phase);
        }
        product_wait<0>();
        registers_settle(state.out);
        if (!first)
            warp_arrive(weighed);
        weighed = shared + S::V_EMPTY + 8 * values.place;
        if (grown && !first)
#pragma unroll
            for (int i = 0; i < S::DV / 2; i++)
                state.out[i] *= shrink[i / 2 % 2];
        weights_pack<S>(state);
        if (last) {
            out_begin<S>(state, values_operand<S>(shared, values.place), !first);
            break;
        }
        scores_begin<S>(state, q_operand, keys_operand<S>(shared, ring.place));
        out_begin<S>(state, values_operand<S>(shared, values.place), !first);
    }
    stages->keys = ring;
    return weighed;
}

// ---- kernel -------------------------------------------------------------------------------------

// True if the warp must store its results of a tile. Otherwise it stored them the first time, or it
// asks for the tile again. May wait for the last product with V. Called by whole warps.
template <class S>
__device__ __forceinline__ bool result_is_good(struct sm90_state<S> &state, struct sm90_task *task)
{
    const uint32_t self = 1u << warp_uniform(threadIdx.x / WARP_LANES);
    const uint32_t again = warp_uniform(task->again);
    if (again)
        return (again & self) != 0;
    const bool wild = state.guess == GUESS_WILD || !sums_are_small<S>(state);
    if (wild) {
        product_wait<0>();
        registers_settle(state.out);
    }
    const bool good = !wild || state_is_good<S>(state);
    if (!good && threadIdx.x % WARP_LANES == 0)
        atomicOr(&task->lost, self);
    return good;
}

// Computes the blocks of `span` of a tile, merges the result, and releases the `behind` blocks of
// the tile that follow. Called by a whole warpgroup.
template <class S>
__device__ __forceinline__ void tile_compute(const struct forward_work &work, uint32_t shared,
                                             const struct sm90_ring<S::SLOTS> &slot,
                                             struct sm90_task *task, const struct sm90_span &span,
                                             const struct sm90_group &group, int behind,
                                             struct sm90_stages<S> *stages)
{
    struct sm90_state<S> state;
    state.max[0] = state.max[1] = MAX_NONE;
    state.seen[0] = state.seen[1] = -CUDART_INF_F;
    state.seen_close[0] = state.seen_close[1] = -CUDART_INF_F;
    state.sum[0] = state.sum[1] = 0;
    const uint32_t again = S::GUESS ? warp_uniform(task->again) : 0;
    state.guess = S::GUESS && again == 0 && !(S::MAX && work.max_logit) ? GUESS_LATER : GUESS_NEVER;
    float before[2]; // loaded while the blocks are computed
    lse_read(work, task, group.row, before);
    uint32_t q = shared + slot.place * S::Q_BYTES + group.index * GROUP_ROWS * SM90_PANEL_ROW_BYTES;
    uint32_t last = span_compute<S>(state, work, shared, task, q, span, group, stages);
    // Passes at once. The branch keeps the compiler from moving the following code, which waits for
    // global memory, in between the last products.
    barrier_wait(shared + S::Q_FULL + 8 * slot.place, slot.phase);
    struct sm90_rows rows = rows_of(work, task, group.row, before);
    int head = task->head;
    if (S::GUESS) {
        // Not a return: the compiler would no longer see that warps stay converged.
        bool good = result_is_good<S>(state, task);
        rows.some[0] = rows.some[0] && good;
        rows.some[1] = rows.some[1] && good;
    }
    __syncwarp();
    warp_arrive(shared + S::Q_EMPTY + 8 * slot.place);
    product_wait<0>();
    registers_settle(state.out);
    warp_arrive(last);
    blocks_skip<S>(shared, behind, stages); // before the merge: others wait for these stages
    state_merge<S>(state, work, rows, head);
    if (S::MAX)
        state_seen<S>(state, work, rows, head);
}

// Body of a consumer warpgroup: computes tile after tile. Returns at a tile without blocks.
template <class S>
__device__ __forceinline__ void tiles_compute(const struct sm90_forward &args, uint32_t shared,
                                              struct sm90_task *tasks)
{
    struct sm90_group group;
    group.index = (int)warp_uniform(threadIdx.x / GROUP_THREADS);
    group.row = (int)(threadIdx.x / WARP_LANES * 16 + threadIdx.x % WARP_LANES / 4);
    struct sm90_stages<S> stages = {
    };
    struct sm90_ring<S::SLOTS> slot = {
        0, 0
    };
    for (;; slot.next()) {
        barrier_wait(shared + S::Q_FULL + 8 * slot.place, slot.phase);
        struct sm90_task *task = &tasks[slot.place];
        int blocks = (int)warp_uniform((uint32_t)task->tile.blocks);
        if (blocks == 0)
            return;
        struct sm90_span span = group_span<S>(task, group.index);
        blocks_skip<S>(shared, span.begin, &stages);
        if (span.begin < span.end) {
            tile_compute<S>(args.work, shared, slot, task, span, group, blocks - span.end, &stages);
        } else {
            __syncwarp();
            warp_arrive(shared + S::Q_EMPTY + 8 * slot.place);
            blocks_skip<S>(shared, blocks, &stages);
        }
    }
}

// Called by the whole block. *_EMPTY count one arrival of each warp that reads the stage or task.
template <class S>
__device__ __forceinline__ void barriers_create(const struct sm90_forward &args, uint32_t shared,
                                                struct sm90_task *tasks)
{
    const int warps = S::GROUPS * GROUP_THREADS / WARP_LANES;
    if (threadIdx.x == 0) {
        tensor_prefetch(&args.q);
        tensor_prefetch(&args.k);
        tensor_prefetch(&args.v);
        for (int i = 0; i < S::SLOTS; i++) {
            tasks[i].lost = 0;
            barrier_init(shared + S::Q_FULL + 8 * i, 1);
            barrier_init(shared + S::Q_EMPTY + 8 * i, warps + S::LOADING_WARPS - 1);
        }
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(shared + S::K_FULL + 8 * i, 1);
            barrier_init(shared + S::K_EMPTY + 8 * i, warps);
            barrier_init(shared + S::V_FULL + 8 * i, 1);
            barrier_init(shared + S::V_EMPTY + 8 * i, warps);
        }
        for (int i = 0; i < S::BIAS_STAGES; i++) {
            barrier_init(shared + S::BIAS_FULL + 8 * i, 2 * SM90_BIAS_WARPS * WARP_LANES);
            barrier_init(shared + S::BIAS_EMPTY + 8 * i, warps);
        }
        barrier_init_fence();
    }
    __syncthreads();
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    sm90_forward_kernel(const __grid_constant__ struct sm90_forward args)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const uint32_t shared = shared_address(memory);
    struct sm90_task *tasks = (struct sm90_task *)(memory + S::TASK);
    barriers_create<S>(args, shared, tasks);
    if (threadIdx.x / GROUP_THREADS == S::GROUPS) {
        registers_release<S::REGISTERS_LOADING>();
        if (threadIdx.x == S::GROUPS * GROUP_THREADS)
            tiles_load<S>(args, shared, tasks);
        if constexpr (S::BIAS)
            if (threadIdx.x >= S::GROUPS * GROUP_THREADS + WARP_LANES)
                bias_load<S>(args, shared, tasks);
    } else {
        registers_acquire<S::REGISTERS_COMPUTING>();
        tiles_compute<S>(args, shared, tasks);
    }
}

// ---- launch -------------------------------------------------------------------------------------

template <class S>
static cudaError_t sm90_launch_instance(const struct sm90_forward &args, cudaStream_t stream)
{
    cudaError_t error = cudaFuncSetAttribute(
        sm90_forward_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::SHARED_BYTES);
    if (error != cudaSuccess)
        return error;
    int blocks = args.work.tile_count * args.work.heads;
    if (!S::GRID && blocks > args.work.multiprocessors)
        blocks = args.work.multiprocessors;
    sm90_forward_kernel<S><<<(unsigned)blocks, S::THREADS, S::SHARED_BYTES, stream>>>(args);
    return cudaGetLastError();
}

template <template <typename> class TRAITS>
static cudaError_t sm90_launch(const struct forward_work &work, enum case_dtype dtype, bool plain,
                               cudaStream_t stream)
{
    typedef TRAITS<__half> S;
    struct sm90_forward args;
    cudaError_t error = plain || S::MAX ? sm90_forward_args(work, dtype, S::ROWS, S::N, &args)
                                        : cudaErrorNotSupported;
    if (error != cudaSuccess)
        return error;
    return dtype == DTYPE_BF16 ? sm90_launch_instance<TRAITS<__nv_bfloat16>>(args, stream)
                               : sm90_launch_instance<TRAITS<__half>>(args, stream);
}

// section_least 0: the same as section_bytes.
template <template <typename> class TRAITS>
constexpr struct forward_instance sm90_instance_of(int64_t section_bytes, int64_t section_least = 0)
{
    typedef TRAITS<__half> S;
    return {S::DQK,
            S::DV,
            {S::ROWS, S::N},
            S::SHARED_BYTES,
            section_bytes,
            section_least > 0 ? section_least : section_bytes,
            sm90_launch<TRAITS>,
            S::TIMES,
            true};
}

#endif
