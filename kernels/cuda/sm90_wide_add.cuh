// SPDX-License-Identifier: Apache-2.0
// Wide backward kernels on sm_90a (sm90_wide_kernel.cuh): which warpgroup computes which panels,
// and the addition of dQ, dK and dV to memory.
#ifndef CPATTN_KERNELS_CUDA_SM90_WIDE_ADD_CUH
#define CPATTN_KERNELS_CUDA_SM90_WIDE_ADD_CUH

#include "kernels/cuda/sm90_backward_add.cuh"
#include "kernels/cuda/sm90_wide_load.cuh"

// The panels of 64 elements that warpgroup GROUP computes: DV panels of dV from panel dv_first on,
// and likewise for dK and dQ. Each warpgroup has half of every tensor.
template <int DQK, int DV_, int GROUP> struct wide_panels {
    static constexpr int DV = DV_ / 128, DK = DQK / 128, DQ = DQK / 128;
    static constexpr int dv_first = DV * GROUP, dk_first = DK * GROUP, dq_first = DQ * GROUP;
};

// dK and dQ have three panels each: the warpgroup that has two of dQ has one of dK.
template <int GROUP> struct wide_panels<192, 128, GROUP> {
    static constexpr int DV = 1, DK = 1 + GROUP, DQ = 2 - GROUP;
    static constexpr int dv_first = GROUP, dk_first = GROUP, dq_first = 2 * GROUP;
};

template <class C, int GROUP> using wide_role = wide_panels<C::DQK, C::DV, GROUP>;

// Named barriers.
enum {
    WIDE_BARRIER_P = 1,     // both consumers: P is stored
    WIDE_BARRIER_DS = 2,    // both consumers: dS is stored, and P has been read
    WIDE_BARRIER_OUT = 3,   // + group: its dQ is staged; the next two: odd steps, ALTERNATING
    WIDE_BARRIER_GROUP = 7, // + group: that warpgroup alone
};

// With w the warp in its warpgroup, g = lane / 4 and t = lane % 4, a thread has queries 16 w + g
// and 16 w + g + 8 of a block, and keys 8 i + 2 t + {0, 1} of its warpgroup's. Returns the first
// query.
static __device__ __forceinline__ unsigned wide_query(void)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS;
    return thread / WARP_LANES * 16 + thread % WARP_LANES / 4;
}

// ---- adding -------------------------------------------------------------------------------------

// Shared address of the buffer in which a warpgroup's dQ is staged for its addition to memory.
template <class C> __device__ __forceinline__ uint32_t wide_out(int group, uint32_t shared)
{
    return shared + C::OUT + group * 2 * C::OUT_FIRST * C::OUT_PANEL;
}

// Stages dQ, times `factor`, in the layout of the TMA boxes at shared address `to`. Called by a
// consumer warpgroup. Odd rows store the column blocks of a panel in another order than even rows,
// so that the two do not conflict in a bank.
template <class C, int COUNT>
__device__ __forceinline__ void wide_dq_stage(const float (&dq)[COUNT], float factor, uint32_t to)
{
    unsigned lane = (unsigned)thread_number() % WARP_LANES, g = lane / 4, query = wide_query();
    bool odd = g % 2;
    uint32_t word = to + query * 128 + lane % 2 * 8;
#pragma unroll
    for (int i = 0; i < COUNT; i += 2) {
        const int other = i ^ 8; // index of the accumulator two blocks of 8 columns away
        int h = i / 2 % 2, panel = i / 16;
        unsigned column = odd ? other / 4 % 4 : i / 4 % 4;
        float x = odd ? dq[other] : dq[i], y = odd ? dq[other + 1] : dq[i + 1];
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};"
                     :
                     : "r"(word + panel * C::OUT_PANEL + h * 8 * 128 +
                           ((column * 2 + lane % 4 / 2) ^ g) * CHUNK_BYTES),
                       "f"(x * factor), "f"(y * factor)
                     : "memory");
    }
    shared_fence();
}

// Adds `rows` rows of staged dQ to memory, row by row, with atomics: `panels` panels of 32 elements
// from element x on. `vector` is the number of the first row in [rows][heads]. Called by a warp.
template <class C>
__device__ __forceinline__ void wide_rows_add(const struct backward_params &p, int64_t vector,
                                              int x, int panels, int rows, uint32_t from)
{
    int lane = (int)threadIdx.x % WARP_LANES;
    float *to = p.dq + vector * p.d_qk + x + lane;
    int64_t stride = p.row_step * p.heads * p.d_qk;
#pragma unroll 1
    for (int row = 0; row < rows; row++)
#pragma unroll 1
        for (int panel = 0; panel < panels; panel++) {
            float sum;
            uint32_t at =
                from + panel * C::OUT_PANEL + panel_offset(0, row, lane / 4) + lane % 4 * 4;
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(sum) : "r"(at) : "memory");
            if (x + panel * PANEL_FLOATS + lane < p.d_qk)
                add_float(to + row * stride + panel * PANEL_FLOATS, sum);
        }
}

// Panels of dQ that a warpgroup stages in one pass, and its passes in a step.
template <class C, class R> struct wide_pass {
    static constexpr int PANELS = C::DQ_AT_ONCE < R::DQ ? C::DQ_AT_ONCE : R::DQ;
    static constexpr int COUNT = R::DQ / PANELS;
};

// Adds one staged pass of a warpgroup's dQ to memory: a whole block by bulk reductions in one
// commit group, a shorter one row by row, with atomics. Called by a warp.
template <class C, class R>
__device__ __forceinline__ void wide_dq_add(const struct sm90_backward_params &p,
                                            const struct sm90_step *step, int group, int pass,
                                            uint32_t shared)
{
    constexpr int PANELS = wide_pass<C, R>::PANELS;
    const struct backward_params &all = p.all;
    const uint32_t from = wide_out<C>(group, shared);
    int y = step->y, z = step->z, rows = step->rows, x = (R::dq_first + pass * PANELS) * PANEL;
    if (rows < C::Q_ROWS) {
        wide_rows_add<C>(all, vector_of(all, all.heads, y, z), x, 2 * PANELS, rows, from);
    } else if (threadIdx.x % WARP_LANES == 0) {
        for (int i = 0; i < 2 * PANELS; i++)
            tensor_add_4d(&p.dq, x + i * PANEL_FLOATS, z, y, 0, from + i * C::OUT_PANEL);
        bulk_commit();
    }
}

// Frees the staging buffer of a warpgroup's dQ once it was read: arrives at OUT_EMPTY. If the
// buffer of warpgroup 0 lies over P, its last pass of a step frees P, too. Called by a warp.
template <class C>
__device__ __forceinline__ void wide_out_free(int group, bool last, uint32_t shared)
{
    __syncwarp();
    if (threadIdx.x % WARP_LANES != 0)
        return;
    bulk_wait_read();
    barrier_arrive(shared + C::OUT_EMPTY + group * 8);
    if (C::OUT_OVER_P && last && group == 0)
        barrier_arrive(shared + C::P_EMPTY);
}

// The warp that adds dQ of warpgroup `group`, in all steps. In a deterministic backward it awaits
// the turn of each step.
template <class C, class R>
__device__ __forceinline__ void wide_dq_add_all(const struct sm90_backward_params &p, int group,
                                                int steps, const char *memory, uint32_t shared)
{
    constexpr int PASSES = wide_pass<C, R>::COUNT;
    const struct sm90_step *ring = (const struct sm90_step *)(memory + C::STEP);
    bool leader = threadIdx.x % WARP_LANES == 0, ordered = p.all.taken != NULL;
#pragma unroll 1
    for (int number = 0; number < steps; number++) {
        const struct sm90_step *step = &ring[number % C::STEPS];
        struct dq_turn turn = {};
        if (ordered)
            turn = turn_await<C>(p.all, number, group, memory, shared);
#pragma unroll 1
        for (int pass = 0; pass < PASSES; pass++) {
            threads_sync(WIDE_BARRIER_OUT + group, DQ_THREADS);
            wide_dq_add<C, R>(p, step, group, pass, shared);
            wide_out_free<C>(group, pass + 1 == PASSES, shared);
        }
        if (ordered && leader)
            turn_pass(turn);
    }
}

// A warp that adds dQ of both warpgroups in a deterministic backward: that of the even or that of
// the odd steps. One of the two warps awaits the turn of its step while the additions of the other
// are on their way to memory. Not used where dQ is staged over P (OUT_OVER_P): there it would only
// make the warpgroups wait for each other.
template <class C>
__device__ __forceinline__ void wide_dq_add_ordered(const struct sm90_backward_params &p, int odd,
                                                    int steps, const char *memory, uint32_t shared)
{
    typedef wide_role<C, 0> R0;
    typedef wide_role<C, 1> R1;
    constexpr int PASSES = wide_pass<C, R0>::COUNT;
    static_assert(PASSES == wide_pass<C, R1>::COUNT, "the warpgroups go together");
    const struct sm90_step *ring = (const struct sm90_step *)(memory + C::STEP);
    const int barrier = WIDE_BARRIER_OUT + 2 * odd;
    bool leader = threadIdx.x % WARP_LANES == 0;
#pragma unroll 1
    for (int number = odd; number < steps; number += 2) {
        const struct sm90_step *step = &ring[number % C::STEPS];
        const struct dq_turn turn = turn_await<C>(p.all, number, 0, memory, shared);
#pragma unroll 1
        for (int pass = 0; pass < PASSES; pass++) {
            threads_sync(barrier, DQ_THREADS);
            wide_dq_add<C, R0>(p, step, 0, pass, shared);
            threads_sync(barrier + 1, DQ_THREADS);
            wide_dq_add<C, R1>(p, step, 1, pass, shared);
            wide_out_free<C>(0, pass + 1 == PASSES, shared);
            wide_out_free<C>(1, pass + 1 == PASSES, shared);
        }
        if (leader)
            turn_pass(turn);
    }
}

// Adds panels of dK' or dV' (elements x keys), times `factor`, to memory, or writes them, one
// number at a time. x is the first element, d the elements of a row. Called by a warpgroup.
template <class C, int PANELS>
__device__ __forceinline__ void
wide_keys_add(const struct backward_params &p, bool writes, const struct sm90_work &work, int x,
              int d, const float (&gradient)[PANELS][C::GRADIENT], float *to, float factor)
{
    int key = thread_number() % 4 * 2;
    x += (int)wide_query(); // rows of the accumulator are elements
    int64_t stride = p.row_step * p.kv_heads * d;
    to += vector_of(p, p.kv_heads, work.kv_y, work.kv_z) * d + key * stride + x;
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++)
#pragma unroll
        for (int i = 0; i < C::GRADIENT; i++) {
            int h = i / 2 % 2, other = i / 4 * 8 + i % 2;
            if (key + other < work.rows && x + panel * PANEL + h * 8 < d)
                put_float(writes, to + other * stride + panel * PANEL + h * 8,
                          gradient[panel][i] * factor);
        }
}

// Stages panels of dK' or dV', times `factor`, in the layout of the TMA boxes: keys x elements.
// Called by a warpgroup.
template <class C, int PANELS>
__device__ __forceinline__ void wide_keys_stage(const float (&gradient)[PANELS][C::GRADIENT],
                                                float factor, uint32_t to)
{
    unsigned lane = (unsigned)thread_number() % WARP_LANES, t = lane % 4, x = wide_query();
    to += x / PANEL_FLOATS * C::KEY_PANEL + 2 * t * 128 + x % 4 * 4;
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++)
#pragma unroll
        for (int i = 0; i < C::GRADIENT; i++) {
            unsigned h = i / 2 % 2, j = i % 2, chunk = x % PANEL_FLOATS / 4 + h * 2;
            asm volatile("st.shared.f32 [%0], %1;"
                         :
                         : "r"(to + panel * 2 * C::KEY_PANEL + (i / 4 * 8 + j) * 128 +
                               (chunk ^ (2 * t + j)) * CHUNK_BYTES),
                           "f"(gradient[panel][i] * factor)
                         : "memory");
        }
}

// The rows of a tile's keys in dK or dV, from element x of d on. `sums` are in fp32, `out` is
// rounded.
template <typename T>
__device__ __forceinline__ keys_rows<T> wide_keys_rows(const struct backward_params &p,
                                                       const struct sm90_work &work, int x, int d,
                                                       const float *sums, void *out)
{
    const int64_t at = vector_of(p, p.kv_heads, work.kv_y, work.kv_z) * d + x;
    return {sums + at, (T *)out + at, p.row_step * p.kv_heads * d, work.rows, d - x};
}

// Adds dK and dV of a warpgroup to memory, or writes them. Where several thread blocks add to the
// same keys, it awaits its turn (struct keys_turn). With dk_out, the last turn rounds the sums to
// dk_out and dv_out. Called by both consumer warpgroups.
template <typename T, class C, class R>
__device__ __forceinline__ void
wide_keys_finish(const struct sm90_backward_params &p, const struct sm90_work &work, int group,
                 const float (&dk)[R::DK][C::GRADIENT], const float (&dv)[R::DV][C::GRADIENT],
                 uint32_t shared)
{
    const struct backward_params &all = p.all;
    const float factor = late_scale<T>(all);
    constexpr int DV_X = R::dv_first * PANEL, DK_X = R::dk_first * PANEL;
    bool leader = thread_number() % GROUP_THREADS == 0, whole = work.rows == C::TILE;
    uint32_t dv_from = shared + R::dv_first * 2 * C::KEY_PANEL;
    uint32_t dk_from = shared + (C::V_PANELS + R::dk_first) * 2 * C::KEY_PANEL;
    struct keys_turn turn = keys_turn_of(all, work, group);
    if (leader)
        keys_turn_number(all, &turn);
    threads_sync(WIDE_BARRIER_DS, CONSUMER_THREADS); // both have read K, V, Q and dO
    if (whole || all.dk_out) {
        wide_keys_stage<C, R::DV>(dv, 1, dv_from);
        wide_keys_stage<C, R::DK>(dk, factor, dk_from);
        shared_fence();
    }
    keys_turn_await(all, &turn, WIDE_BARRIER_GROUP + group, shared + C::LSE + group * 4);
    const bool writes = all.keys_begin && turn.number == 0;
    if (all.dk_out && turn.number == turn.count - 1) {
        keys_round<T, C::TILE, 2 * R::DV>(
            wide_keys_rows<T>(all, work, DV_X, all.d_v, all.dv, all.dv_out), !writes, dv_from);
        keys_round<T, C::TILE, 2 * R::DK>(
            wide_keys_rows<T>(all, work, DK_X, all.d_qk, all.dk, all.dk_out), !writes, dk_from);
        return;
    }
    if (whole && leader) {
        fence_all();
        tensor_put_4d<2 * R::DV>(writes, &p.dv, DV_X, work.kv_z, work.kv_y, dv_from, C::KEY_PANEL);
        tensor_put_4d<2 * R::DK>(writes, &p.dk, DK_X, work.kv_z, work.kv_y, dk_from, C::KEY_PANEL);
        bulk_commit();
        bulk_wait_read();
    }
    if (!whole) {
        wide_keys_add<C, R::DV>(all, writes, work, DV_X, all.d_v, dv, all.dv, 1);
        wide_keys_add<C, R::DK>(all, writes, work, DK_X, all.d_qk, dk, all.dk, factor);
    }
    keys_turn_pass(all, turn, WIDE_BARRIER_GROUP + group);
}

#endif
