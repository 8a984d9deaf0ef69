// SPDX-License-Identifier: Apache-2.0
// Backward on sm_90a: adds dQ, dK, dV and the staged dbias to memory.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_ADD_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_ADD_CUH

#include "kernels/cuda/sm90_backward_work.cuh"

// ---- order --------------------------------------------------------------------------------------
// Where thread blocks take turns, a counter in global memory holds the number of turns taken. A
// thread waits for its turn with acquire loads. The turn before ends with a release.

static __device__ __forceinline__ void counter_wait(const unsigned *counter, unsigned turn)
{
    unsigned now;
    do
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    while (now != turn);
}

static __device__ __forceinline__ void counter_wait_least(const unsigned *counter, unsigned least)
{
    unsigned now;
    do
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    while (now < least);
}

static __device__ __forceinline__ void counter_set(unsigned *counter, unsigned turn)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(counter), "r"(turn) : "memory");
}

static __device__ __forceinline__ void counter_raise(unsigned *counter)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(counter) : "memory");
}

// A turn to add dQ of a step: it begins when *counter == turn.
struct dq_turn {
    unsigned *counter, turn;
};

// Waits until step `number` is in the ring, and then for its turn at counter `part` of its block
// and head. This takes a while even if the turn has come, so it precedes the wait for the staged
// dQ. Called by a warp.
template <class C>
__device__ __forceinline__ struct dq_turn turn_await(const struct backward_params &p, int number,
                                                     int part, const char *memory, uint32_t shared)
{
    const struct sm90_step *step = (const struct sm90_step *)(memory + C::STEP) + number % C::STEPS;
    barrier_wait(shared + C::TOLD + number % C::STEPS * 8, (uint32_t)(number / C::STEPS) & 1);
    const struct dq_turn turn = {p.taken + (int64_t)step->block * BACKWARD_WARPS + part,
                                 (unsigned)step->turn};
    if (threadIdx.x % WARP_LANES == 0) {
        counter_wait(turn.counter, turn.turn);
        fence_all();
    }
    __syncwarp();
    return turn;
}

// Waits until the bulk operations of this thread are complete in memory, and lets the next turn
// begin. Called by the leader of the warp that added.
static __device__ __forceinline__ void turn_pass(const struct dq_turn &turn)
{
    bulk_wait();
    fence_all();
    counter_set(turn.counter, turn.turn + 1);
}

// ---- boxes --------------------------------------------------------------------------------------

// Adds COUNT boxes, side by side from element c0 on, to memory by bulk reductions; or stores them
// if `writes`. In shared memory they are `step` bytes apart. One branch around both loops takes the
// fewest registers. Called by one thread, which commits.
template <int COUNT>
__device__ __forceinline__ void tensor_put_4d(bool writes, const CUtensorMap *map, int c0, int c1,
                                              int c2, uint32_t from, int step)
{
    if (writes)
        for (int i = 0; i < COUNT; i++)
            tensor_store_4d(map, c0 + i * PANEL_FLOATS, c1, c2, 0, from + i * step);
    else
        for (int i = 0; i < COUNT; i++)
            tensor_add_4d(map, c0 + i * PANEL_FLOATS, c1, c2, 0, from + i * step);
}

// ---- dQ -----------------------------------------------------------------------------------------

// Adds (or writes) `rows` rows of staged dQ row by row, 64 elements from element x on. `vector`:
// index of the first row in [rows][heads]. Called by a warp.
template <class C>
__device__ __forceinline__ void dq_add_rows(const struct backward_params &p, bool writes,
                                            int64_t vector, int x, int rows, uint32_t from)
{
    int lane = (int)threadIdx.x % WARP_LANES;
    float *to = p.dq + vector * p.d_qk + x + lane;
    int64_t stride = p.row_step * p.heads * p.d_qk;
#pragma unroll 1
    for (int row = 0; row < rows; row++)
#pragma unroll
        for (int panel = 0; panel < 2; panel++) {
            float sum;
            uint32_t at =
                from + panel * C::DQ_PANEL + panel_offset(0, row, lane / 4) + lane % 4 * 4;
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(sum) : "r"(at) : "memory");
            if (x + panel * PANEL_FLOATS + lane < p.d_qk)
                put_float(writes, to + row * stride + panel * PANEL_FLOATS, sum);
        }
}

// Shared address of the buffer that stages a warpgroup's dQ of a step.
template <class C> __device__ __forceinline__ uint32_t dq_place(unsigned number, int group)
{
    return C::DQ + (number % C::DQ_STAGES * 2 + group) * C::DQ_BYTES;
}

// Offset from BARRIER_DQ_FULL and BARRIER_DQ_EMPTY to the barriers of a step and a warpgroup.
static __device__ __forceinline__ int dq_barrier(unsigned number, int group)
{
    return (int)(number % 2) * 2 + group;
}

// Adds (or writes) the staged dQ of a warpgroup at shared address `from`: half of the elements or
// half of the queries of a step. Full boxes go by bulk operations, fewer rows one by one. Called by
// a warp, whose leader must commit and wait.
template <class C>
__device__ __forceinline__ void dq_add(const struct sm90_backward_params &p, bool writes,
                                       const struct sm90_step *step, int group, uint32_t from)
{
    const struct backward_params &all = p.all;
    int x = C::PANELS == 2 ? group * PANEL : 0, below = C::PANELS == 2 ? 0 : group * C::DQ_ROWS;
    int y = step->y, z = step->z + below, rows = min(step->rows - below, C::DQ_ROWS);
    if (rows == C::DQ_ROWS && threadIdx.x % WARP_LANES == 0)
        tensor_put_4d<2>(writes, &p.dq, x, z, y, from, C::DQ_PANEL);
    if (rows < C::DQ_ROWS)
        dq_add_rows<C>(all, writes, vector_of(all, all.heads, y, z), x, rows, from);
}

// Commits the leader's bulk operations and waits until their shared memory has been read. Called by
// a warp.
static __device__ __forceinline__ void dq_wait_read(void)
{
    if (threadIdx.x % WARP_LANES == 0) {
        bulk_commit();
        bulk_wait_read();
    }
    __syncwarp();
}

static __device__ __forceinline__ float4 shared_four(uint32_t address)
{
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

// Adds a warpgroup's staged dbias by atomics of four floats, two rows at a time: bulk reductions
// would delay those of dQ. Called by a warp.
template <class C>
__device__ __forceinline__ void dbias_add_rows(const struct backward_params &p,
                                               const struct sm90_step *step, int group,
                                               uint32_t from)
{
    const int lane = (int)threadIdx.x % WARP_LANES, chunk = lane % 16, first = lane / 16;
    const int64_t stride = p.bias_query_stride;
    float *to = p.dbias + step->bias + group * GROUP_KEYS + chunk * 4 + first * stride;
    from += chunk / 8 * C::DBIAS_PANEL;
#pragma unroll 4
    for (int row = 0; row < C::Q_ROWS; row += 2)
        add_four(to + row * stride, shared_four(from + panel_offset(0, row + first, chunk % 8)));
}

// Waits until a warpgroup's dbias of a step is staged, and adds it; if dbias_once, its leader
// stores it by bulk copies and commits. If the step is not staged, the consumer threads have added
// it: dbias_hand_over(). Called by a warp.
template <class C>
__device__ __forceinline__ void dbias_add_staged(const struct sm90_backward_params &p,
                                                 const struct sm90_step *step, int group,
                                                 uint32_t shared)
{
    threads_sync(BARRIER_DBIAS_FULL + group, DQ_THREADS);
    if (!step->dbias_staged)
        return;
    const uint32_t from = shared + C::DBIAS_AT + group * 2 * C::DBIAS_PANEL;
    const int column = step->bias_column + group * GROUP_KEYS;
    if (!p.all.dbias_once) {
        dbias_add_rows<C>(p.all, step, group, from);
    } else if (threadIdx.x % WARP_LANES == 0) {
        const uint64_t policy = l2_policy(true);
        tensor_store_2d(&p.dbias, column, step->bias_row, policy, from);
        tensor_store_2d(&p.dbias, column + PANEL_FLOATS, step->bias_row, policy,
                        from + C::DBIAS_PANEL);
        bulk_commit();
    }
}

// Gives the staged dbias back to its warpgroup once it has been read: commits the bulk operations
// of dQ and waits for all commit groups before theirs. Called by a warp, after dq_add().
static __device__ __forceinline__ void dbias_free(int group)
{
    if (threadIdx.x % WARP_LANES == 0) {
        bulk_commit();
        bulk_wait_read_but_last();
    }
    __syncwarp();
    threads_arrive(BARRIER_DBIAS_EMPTY + group, DQ_THREADS);
}

// The warp that adds dQ, and the staged dbias, of warpgroup `group` in all steps.
template <class C>
__device__ __forceinline__ void dq_add_all(const struct sm90_backward_params &p, int group,
                                           int steps, const char *memory, uint32_t shared)
{
    const struct sm90_step *ring = (const struct sm90_step *)(memory + C::STEP);
#pragma unroll 1
    for (int number = 0; number < steps; number++) {
        int barrier = dq_barrier(number, group);
        const struct sm90_step *step = &ring[number % C::STEPS];
        if (C::DBIAS && p.all.dbias)
            dbias_add_staged<C>(p, step, group, shared);
        threads_sync(BARRIER_DQ_FULL + barrier, DQ_THREADS);
        dq_add<C>(p, false, step, group, shared + dq_place<C>(number, group));
        if (C::DBIAS && p.all.dbias && number + 1 < steps)
            dbias_free(group);
        dq_wait_read();
        if (number + C::DQ_STAGES < steps)
            threads_arrive(BARRIER_DQ_EMPTY + barrier, DQ_THREADS);
    }
}

// A warp that adds dQ of both warpgroups in turns: that of the even or that of the odd steps. One
// of the two warps waits for its turn while the additions of the other are on their way to memory.
template <class C>
__device__ __forceinline__ void dq_add_ordered(const struct sm90_backward_params &p, int odd,
                                               int steps, const char *memory, uint32_t shared)
{
    const struct sm90_step *ring = (const struct sm90_step *)(memory + C::STEP);
    bool leader = threadIdx.x % WARP_LANES == 0;
#pragma unroll 1
    for (int number = odd; number < steps; number += 2) {
        int barrier = dq_barrier(number, 0);
        const struct dq_turn turn = turn_await<C>(p.all, number, 0, memory, shared);
        threads_sync(BARRIER_DQ_FULL + barrier, DQ_THREADS);
        threads_sync(BARRIER_DQ_FULL + barrier + 1, DQ_THREADS);
        const struct sm90_step *step = &ring[number % C::STEPS];
        const bool writes = p.all.queries_begin && turn.turn == 0;
        for (int group = 0; group < 2; group++)
            dq_add<C>(p, writes, step, group, shared + dq_place<C>(number, group));
        dq_wait_read();
        if (number + C::DQ_STAGES < steps) {
            threads_arrive(BARRIER_DQ_EMPTY + barrier, DQ_THREADS);
            threads_arrive(BARRIER_DQ_EMPTY + barrier + 1, DQ_THREADS);
        }
        if (leader)
            turn_pass(turn);
    }
}

// ---- dK and dV ----------------------------------------------------------------------------------

// Adds (or writes) a thread's accumulators of dK or dV, times factor, row by row. `key`: the
// thread's first key in the tile; the second is 8 further.
template <class C>
__device__ __forceinline__ void
keys_add_rows(const struct backward_params &p, bool writes, const struct sm90_work &work, int key,
              int d, const float (&acc)[C::KEYS], float *gradient, float factor)
{
    int column = (int)threadIdx.x % 4 * 2;
    int64_t vector = vector_of(p, p.kv_heads, work.kv_y, work.kv_z);
    int64_t stride = p.row_step * p.kv_heads * d;
    float *to = gradient + vector * d + key * stride + column;
#pragma unroll
    for (int i = 0; i < C::KEYS; i += 2) {
        int h = i / 2 % 2, x = i / 4 * 8;
        float *at = to + h * 8 * stride + x;
        if (key + h * 8 >= work.rows || column + x >= d)
            continue;
        if (writes)
            *(float2 *)at = make_float2(acc[i] * factor, acc[i + 1] * factor);
        else
            add_pair(at, acc[i] * factor, acc[i + 1] * factor);
    }
}

// Stages a warpgroup's accumulators of dK or dV, times factor, in the layout of the TMA boxes at
// shared address `to`.
template <class C>
__device__ __forceinline__ void keys_stage(const float (&acc)[C::KEYS], uint32_t to, float factor)
{
    unsigned thread = threadIdx.x % GROUP_THREADS, lane = thread % WARP_LANES;
    unsigned row = thread / WARP_LANES * 16 + lane / 4, chunk = lane % 4 / 2;
    uint32_t word = to + lane % 2 * 8;
#pragma unroll
    for (int i = 0; i < C::KEYS; i += 2) {
        int h = i / 2 % 2, column = i / 4 * 8;
        uint32_t at = word + column / PANEL_FLOATS * C::KEY_PANEL +
                      panel_offset(0, row + h * 8, column % PANEL_FLOATS / 4 + chunk);
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};"
                     :
                     : "r"(at), "f"(acc[i] * factor), "f"(acc[i + 1] * factor)
                     : "memory");
    }
}

// The turn of a warpgroup among the `count` that add to dK and dV of the same keys. If dK and dV
// begin with 0 (keys_begin), turn 0 writes instead of adding. If they are wanted rounded (dk_out),
// the last turn rounds. Deterministic: each turn waits for the one before. Otherwise turns are
// numbered as they arrive: if turn 0 writes, all others wait for it; if the last one rounds, it
// waits for all others.
struct keys_turn {
    unsigned *counter; // of ended turns; NULL: nobody waits
    unsigned number, count;
};

// Offset from a warpgroup's counter of ended turns to its counter of arrivals.
#define KEYS_ARRIVED 2

// The turn of a warpgroup in a deterministic backward: the heads that share a key head one after
// the other; those of the tail piece by piece, in each piece head by head. Thread blocks start in
// this order, too. Otherwise keys_turn_number() replaces the number.
static __device__ __forceinline__ struct keys_turn
keys_turn_of(const struct backward_params &p, const struct sm90_work &work, int group)
{
    const struct backward_tile *tile = work.tile;
    int first = work.unit_head, end = first + 1; // unit heads that share the key head
    if (p.by_query_head) {
        first = max(0, work.kv_head * p.group - p.head_phase);
        end = min(p.heads, (work.kv_head + 1) * p.group - p.head_phase);
    }
    // How many of these heads are not in the tail: they come first in the order of all heads.
    int whole = p.unit_heads - p.tail_heads;
    whole = p.heads_dealt ? (whole - work.kv_head + p.kv_heads - 1) / p.kv_heads : whole - first;
    int cut = end - first - max(0, min(whole, end - first));
    struct keys_turn turn;
    turn.number = (unsigned)(work.unit_head - first + tile->piece * cut);
    turn.count = (unsigned)(end - first + (tile->pieces - 1) * cut);
    turn.counter = NULL;
    if (p.taken_keys && turn.count > 1)
        turn.counter = p.taken_keys +
                       ((int64_t)tile->keys * p.kv_heads + work.kv_head) * BACKWARD_WARPS + group;
    return turn;
}

// Numbers the turn by arrival, unless deterministic. Called by one thread of the warpgroup.
static __device__ __forceinline__ void keys_turn_number(const struct backward_params &p,
                                                        struct keys_turn *turn)
{
    if (turn->counter && !p.tickets)
        turn->number = atomicAdd(turn->counter + KEYS_ARRIVED, 1u);
}

// How many turns must have ended before this one begins.
static __device__ __forceinline__ unsigned keys_turn_least(const struct backward_params &p,
                                                           const struct keys_turn &turn)
{
    if (p.tickets || (p.dk_out && turn.number == turn.count - 1))
        return turn.number;
    return p.keys_begin && turn.number > 0;
}

// Waits for the turn. Called by a warpgroup with its named barrier. Only its first thread has the
// turn's number; it passes the number to the others in a word of shared memory.
static __device__ __forceinline__ void
keys_turn_await(const struct backward_params &p, struct keys_turn *turn, int barrier, uint32_t word)
{
    if (turn->counter && threadIdx.x % GROUP_THREADS == 0) {
        counter_wait_least(turn->counter, keys_turn_least(p, *turn));
        fence_all();
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(word), "r"(turn->number) : "memory");
    }
    threads_sync(barrier, GROUP_THREADS);
    if (turn->counter)
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(turn->number) : "r"(word) : "memory");
}

// Ends the turn once its additions are in memory, if another turn may wait for it. Called by a
// warpgroup with its named barrier.
static __device__ __forceinline__ void keys_turn_pass(const struct backward_params &p,
                                                      const struct keys_turn &turn, int barrier)
{
    if (!turn.counter || (!p.tickets && !p.dk_out && turn.number > 0))
        return;
    __threadfence();
    threads_sync(barrier, GROUP_THREADS);
    if (threadIdx.x % GROUP_THREADS == 0) {
        bulk_wait();
        fence_all();
        counter_raise(turn.counter);
    }
}

static __device__ __forceinline__ float4 sum_of(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Rows of dK or dV of a warpgroup's keys in memory.
template <typename T> struct keys_rows {
    const float *sums; // of the turns before
    T *out;            // rounded result
    int64_t stride;    // elements between rows
    int rows, columns; // that exist
};

// Rounds staged sums to T and stores them: COUNT panels of ROWS rows at shared address `from`. If
// `adds`, adds the sums in memory first. Called by a warpgroup.
template <typename T, int ROWS, int COUNT>
__device__ __forceinline__ void keys_round(const struct keys_rows<T> &to, bool adds, uint32_t from)
{
#pragma unroll 4
    for (int i = (int)threadIdx.x % GROUP_THREADS; i < ROWS * COUNT * 4; i += GROUP_THREADS) {
        const int row = i / 4 % ROWS, panel = i / 4 / ROWS, chunk = i % 4 * 2;
        const int column = panel * PANEL_FLOATS + chunk * 4;
        if (row >= to.rows || column >= to.columns)
            continue;
        const int64_t at = row * to.stride + column;
        const uint32_t box = from + panel * ROWS * 128;
        float4 low = shared_four(box + panel_offset(0, row, chunk));
        float4 high = shared_four(box + panel_offset(0, row, chunk + 1));
        if (adds) {
            low = sum_of(low, __ldcg((const float4 *)(to.sums + at)));
            high = sum_of(high, __ldcg((const float4 *)(to.sums + at + 4)));
        }
        *(uint4 *)(to.out + at) = make_uint4(pack<T>(low.x, low.y), pack<T>(low.z, low.w),
                                             pack<T>(high.x, high.y), pack<T>(high.z, high.w));
    }
}

template <typename T>
__device__ __forceinline__ keys_rows<T> keys_rows_of(const struct backward_params &p,
                                                     const struct sm90_work &work, int group, int d,
                                                     const float *sums, void *out)
{
    const int64_t stride = p.row_step * p.kv_heads * d;
    const int64_t at =
        vector_of(p, p.kv_heads, work.kv_y, work.kv_z) * d + group * GROUP_KEYS * stride;
    return {sums + at, (T *)out + at, stride, work.rows - group * GROUP_KEYS, d};
}

// Ends a tile: adds a warpgroup's dV, and dK times dk_factor, to memory. The first turn may write
// and the last may round instead (struct keys_turn). A whole tile goes through shared memory and
// bulk operations, a short one row by row. Called by both consumer warpgroups.
template <typename T, class C>
__device__ __forceinline__ void
keys_add(const struct sm90_backward_params &p, const struct sm90_work &work, int group,
         float dk_factor, const float (&dk)[C::KEYS], const float (&dv)[C::KEYS], uint32_t shared)
{
    const struct backward_params &all = p.all;
    bool leader = threadIdx.x % GROUP_THREADS == 0, whole = work.rows == KV_ROWS;
    struct keys_turn turn = keys_turn_of(all, work, group);
    if (leader)
        keys_turn_number(all, &turn);
    threads_sync(BARRIER_DS, CONSUMER_THREADS); // both are done with K, V, Q and dO
    uint32_t dv_from = shared + C::K + group * C::KEY_BYTES;
    uint32_t dk_from = shared + C::Q + group * C::KEY_BYTES;
    if (whole || all.dk_out) {
        keys_stage<C>(dv, dv_from, 1);
        keys_stage<C>(dk, dk_from, dk_factor);
        shared_fence();
    }
    keys_turn_await(all, &turn, BARRIER_GROUP + group, shared + C::LSE + group * 4);
    const bool writes = all.keys_begin && turn.number == 0;
    if (all.dk_out && turn.number == turn.count - 1) {
        keys_round<T, GROUP_KEYS, 2 * C::PANELS>(
            keys_rows_of<T>(all, work, group, all.d_v, all.dv, all.dv_out), !writes, dv_from);
        keys_round<T, GROUP_KEYS, 2 * C::PANELS>(
            keys_rows_of<T>(all, work, group, all.d_qk, all.dk, all.dk_out), !writes, dk_from);
        return;
    }
    if (whole && leader) {
        int z = work.kv_z + group * 64;
        fence_all();
        tensor_put_4d<2 * C::PANELS>(writes, &p.dv, 0, z, work.kv_y, dv_from, C::KEY_PANEL);
        tensor_put_4d<2 * C::PANELS>(writes, &p.dk, 0, z, work.kv_y, dk_from, C::KEY_PANEL);
        bulk_commit();
        bulk_wait_read();
    }
    if (!whole) {
        int thread = (int)threadIdx.x % GROUP_THREADS, lane = thread % WARP_LANES;
        int key = group * 64 + thread / WARP_LANES * 16 + lane / 4;
        keys_add_rows<C>(all, writes, work, key, all.d_v, dv, all.dv, 1);
        keys_add_rows<C>(all, writes, work, key, all.d_qk, dk, all.dk, dk_factor);
    }
    keys_turn_pass(all, turn, BARRIER_GROUP + group);
}

#endif
