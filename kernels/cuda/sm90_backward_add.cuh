// SPDX-License-Identifier: Apache-2.0
// Backward on sm_90a: adds dQ, dK and dV to memory.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_ADD_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_ADD_CUH

#include "kernels/cuda/sm90_backward_work.cuh"

// ---- order --------------------------------------------------------------------------------------

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

// A turn to add dQ of a step.
struct dq_turn {
    unsigned *counter, turn;
};

// Waits for it, as a warp. That takes a while even if it has come, so it is done before dQ is
// there.
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

// Lets the next one begin when this thread's additions are in memory.
static __device__ __forceinline__ void turn_pass(const struct dq_turn &turn)
{
    bulk_wait();
    fence_all();
    counter_set(turn.counter, turn.turn + 1);
}

// ---- boxes --------------------------------------------------------------------------------------

// Adds or writes COUNT boxes side by side, from c0 on; in shared memory they are `step` bytes
// apart. One branch for all of them takes the fewest registers.
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

// Adds a part of dQ of `rows` rows, row by row, as a warp, or writes it.
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

// Where dQ of a step and a warpgroup lies, and which of the barriers is about it.
template <class C> __device__ __forceinline__ uint32_t dq_place(unsigned number, int group)
{
    return C::DQ + (number % C::DQ_STAGES * 2 + group) * C::DQ_BYTES;
}

static __device__ __forceinline__ int dq_barrier(unsigned number, int group)
{
    return (int)(number % 2) * 2 + group;
}

// Adds what a warpgroup has of a step, as a warp, or writes it. The leader has to commit and wait.
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

// Waits until what a warp adds has been read.
static __device__ __forceinline__ void dq_wait_read(void)
{
    if (threadIdx.x % WARP_LANES == 0) {
        bulk_commit();
        bulk_wait_read();
    }
    __syncwarp();
}

// Four numbers in shared memory.
static __device__ __forceinline__ float4 shared_four(uint32_t address)
{
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

// Adds a warpgroup's gradient of the bias, as a warp: two rows at a time, since bulk additions
// would keep those to dQ waiting.
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

// The same, or writes it where there is nothing to add to. The leader commits.
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

// Gives back where it lay, once it was read. What is added since may still be.
static __device__ __forceinline__ void dbias_free(int group)
{
    if (threadIdx.x % WARP_LANES == 0) {
        bulk_commit();
        bulk_wait_read_but_last();
    }
    __syncwarp();
    threads_arrive(BARRIER_DBIAS_EMPTY + group, DQ_THREADS);
}

// One of the warps that add dQ: that of warpgroup `group`.
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

// One of the warps that add dQ in turns: that of even or of odd steps, so that one step waits for
// its turn while the other is on its way to memory.
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

// Adds a thread's part of dK or dV, times factor, to memory, row by row, or writes it.
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

// Lays it out in shared memory as the boxes want it.
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

// The turn of a warpgroup among the `count` that add to dK and dV of the same keys. The first one
// writes if dK and dV begin here, and the last one rounds if that is asked for. In a deterministic
// backward each waits for the one before. In others they are numbered as they arrive: all wait for
// one that writes, and one that rounds waits for all.
struct keys_turn {
    unsigned *counter; // of turns taken; NULL: nobody waits
    unsigned number, count;
};

// From a warpgroup's counter of turns to its counter of arrivals.
#define KEYS_ARRIVED 2

// In a deterministic backward heads that share a key head come one after the other; those of the
// tail piece by piece, in the order in which thread blocks begin.
static __device__ __forceinline__ struct keys_turn
keys_turn_of(const struct backward_params &p, const struct sm90_work &work, int group)
{
    const struct backward_tile *tile = work.tile;
    int first = work.unit_head, end = first + 1; // unit heads that share the key head
    if (p.by_query_head) {
        first = max(0, work.kv_head * p.group - p.head_phase);
        end = min(p.heads, (work.kv_head + 1) * p.group - p.head_phase);
    }
    // How many of these heads are not in pieces: they come first in the order of all heads.
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

// Takes the number of an arrival, as one thread of a warpgroup.
static __device__ __forceinline__ void keys_turn_number(const struct backward_params &p,
                                                        struct keys_turn *turn)
{
    if (turn->counter && !p.tickets)
        turn->number = atomicAdd(turn->counter + KEYS_ARRIVED, 1u);
}

// How many turns must have been taken before this one.
static __device__ __forceinline__ unsigned keys_turn_least(const struct backward_params &p,
                                                           const struct keys_turn &turn)
{
    if (p.tickets || (p.dk_out && turn.number == turn.count - 1))
        return turn.number;
    return p.keys_begin && turn.number > 0;
}

// Waits for the turn, as a warpgroup with a barrier of its own. Its first thread knows the number,
// and tells the others in a word of shared memory.
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

// Ends the turn when the additions are in memory, if another one may wait for that.
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

// Rows of dK or dV in memory: sums, and where they go rounded.
template <typename T> struct keys_rows {
    const float *sums;
    T *out;
    int64_t stride;
    int rows, columns;
};

// Rounds what a warpgroup staged: boxes of ROWS rows of COUNT panels. With `adds` the sums in
// memory are added before.
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

// Rows of a warpgroup's keys, all elements.
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

// dK and dV of a warpgroup to memory; where several thread blocks add to the same, in turns.
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
    threads_sync(BARRIER_DS, CONSUMER_THREADS); // both have read all there was
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
