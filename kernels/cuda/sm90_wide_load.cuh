// SPDX-License-Identifier: Apache-2.0
// Wide backward kernels on sm_90a: the layout of shared memory, and the producer warps, which load
// ahead of the consumer warpgroups.
#ifndef CPATTN_KERNELS_CUDA_SM90_WIDE_LOAD_CUH
#define CPATTN_KERNELS_CUDA_SM90_WIDE_LOAD_CUH

#include "kernels/cuda/sm90_backward_load.cuh"

// What a kernel supports beside plain attention: nothing, softcap, bias, both.
enum wide_features { WIDE_BARE, WIDE_CAPPED, WIDE_BIASED, WIDE_BOTH };

// DQK and DV: largest head dimensions, multiples of 64. KEYS: keys of a tile. Blocks have 64
// queries; dO of a block is loaded in one of DO_STAGES stages. DQ_AT_ONCE: panels of dQ that a
// warpgroup computes in one pass, if it has as many. OUT_OVER_P: dQ is staged over P. BIAS_BOX:
// columns of a TMA box of the bias.
template <int DQK_, int DV_, int KEYS_, int DO_STAGES_, int DQ_AT_ONCE_, bool OUT_OVER_P_,
          enum wide_features FEATURES, int BIAS_BOX_ = 0>
struct sm90_wide_config {
    static constexpr bool OUT_OVER_P = OUT_OVER_P_, CAPPED = FEATURES == WIDE_CAPPED;
    static constexpr bool BIASED = FEATURES == WIDE_BIASED, BOTH = FEATURES == WIDE_BOTH;
    static constexpr bool GENERAL = BIASED || BOTH;
    // In a deterministic backward, each of the two warps that add dQ has every other step of both
    // warpgroups, instead of all steps of one.
    static constexpr bool ALTERNATING = !OUT_OVER_P;
    static constexpr bool BY_FOURS = false;
    static constexpr bool DBIAS = false; // the bias gradient is added from registers
    static constexpr int DQK = DQK_, DV = DV_, TILE = KEYS_, DO_STAGES = DO_STAGES_;
    static constexpr int DQ_AT_ONCE = DQ_AT_ONCE_;
    static constexpr int Q_ROWS = 64, STAGES = 2, STEPS = 8;
    static constexpr int QK_PANELS = DQK / PANEL, V_PANELS = DV / PANEL;
    // KEYS: keys of a warpgroup in S and dP. Accumulators of a thread: SCORES of S or dP; GRADIENT
    // of a panel of dK or dV, which covers all keys of the tile.
    static constexpr int KEYS = TILE / 2, SCORES = KEYS / 2, GRADIENT = TILE / 2;
    // Shared memory: sizes, and offsets from its beginning, in bytes.
    static constexpr int KV_PANEL = TILE * PANEL * 2, Q_PANEL = Q_ROWS * PANEL * 2;
    static constexpr int K_BYTES = QK_PANELS * KV_PANEL, V_BYTES = V_PANELS * KV_PANEL;
    static constexpr int Q_BYTES = QK_PANELS * Q_PANEL, DO_BYTES = V_PANELS * Q_PANEL;
    // P and dS: a row of 64 queries for each key.
    static constexpr int P_BYTES = KV_PANEL;
    static constexpr int K = 0, V = K + K_BYTES, Q = V + V_BYTES, DO = Q + STAGES * Q_BYTES;
    static constexpr int DS = DO + DO_STAGES * DO_BYTES, P = DS + P_BYTES;
    // Staged dQ, in panels of 32 elements: 2 OUT_FIRST panels for the first warpgroup, 2 OUT_SECOND
    // for the second.
    static constexpr int OUT_PANEL = Q_ROWS * PANEL_FLOATS * 4, HALF = (QK_PANELS + 1) / 2;
    static constexpr int OUT_FIRST = DQ_AT_ONCE < HALF ? DQ_AT_ONCE : HALF;
    static constexpr int OUT_SECOND = DQ_AT_ONCE < QK_PANELS - HALF ? DQ_AT_ONCE : QK_PANELS - HALF;
    static constexpr int OUT = OUT_OVER_P ? P : P + P_BYTES;
    // The bias. With BOTH it is read from global memory instead.
    static constexpr int BIAS_BOX = BIAS_BOX_, BIAS_PANEL = Q_ROWS * BIAS_BOX * 2;
    static constexpr int BIAS_BYTES = BIASED ? Q_ROWS * TILE * 2 : 0;
    static constexpr int BIAS = OUT + 2 * (OUT_FIRST + OUT_SECOND) * OUT_PANEL;
    static_assert(!BIASED || TILE % (BIASED ? BIAS_BOX : 1) == 0, "boxes fill it");
    static constexpr int LSE = BIAS + BIAS_BYTES;
    static constexpr int DELTA = LSE + STAGES * Q_ROWS * 4;
    static constexpr int STEP = DELTA + STAGES * Q_ROWS * 4;
    static constexpr int FULL = STEP + STEPS * (int)sizeof(struct sm90_step);
    static constexpr int EMPTY = FULL + STAGES * 8, KV_FULL = EMPTY + STAGES * 8;
    static constexpr int DO_FULL = KV_FULL + 8, DO_EMPTY = DO_FULL + DO_STAGES * 8;
    static constexpr int OUT_EMPTY = DO_EMPTY + DO_STAGES * 8;
    static constexpr int P_EMPTY = OUT_EMPTY + 2 * 8, BIAS_FULL = P_EMPTY + 8;
    static constexpr int BIAS_EMPTY = BIAS_FULL + 8, TOLD = BIAS_EMPTY + 8;
    static constexpr int UNIT = (TOLD + STEPS * 8 + 15) / 16 * 16;
    static constexpr int BYTES = UNIT + (int)sizeof(struct backward_unit);
    static_assert(KV_PANEL % 1024 == 0 && KEYS % 8 == 0, "panels and halves begin where the "
                                                         "swizzle's pattern does");
    static_assert(!OUT_OVER_P || P_BYTES <= 2 * OUT_FIRST * OUT_PANEL,
                  "P meets dQ of the first warpgroup alone");
    // dK and dV are staged from offset 0 on.
    static constexpr int KEY_PANEL = TILE * PANEL_FLOATS * 4;
    static_assert(2 * (QK_PANELS + V_PANELS) * KEY_PANEL <= DS && OUT % 1024 == 0, "they fit");
    static_assert(BYTES <= 227 * 1024, "it fits");
};

// ---- loading ------------------------------------------------------------------------------------

// Loads `rows` rows of d elements, from row z of head y on (see struct sm90_backward_params), into
// a tile of ROWS rows and PANELS panels: a whole tile by the tensor map, a shorter one row by row,
// with the rest of the tile cleared. Arrives at the mbarrier once. Called by a warp.
template <int ROWS, int PANELS>
__device__ __forceinline__ void tile_load(uint32_t to, const CUtensorMap *map, const void *tensor,
                                          const struct backward_params &all, int heads, int d,
                                          int y, int z, int rows, uint32_t barrier)
{
    bool leader = threadIdx.x % WARP_LANES == 0;
    if (rows == ROWS) {
        if (!leader)
            return;
        barrier_expect(barrier, PANELS * ROWS * PANEL * 2);
        for (int i = 0; i < PANELS; i++)
            tensor_load_4d(to + i * ROWS * PANEL * 2, map, i * PANEL, z, y, 0, barrier);
        return;
    }
    int64_t stride = all.row_step * heads, vector = vector_of(all, heads, y, z);
    rows_load<PANELS * PANEL, ROWS>(to, (const uint16_t *)tensor + vector * d, stride * d, rows, d);
    __syncwarp();
    if (leader)
        barrier_arrive(barrier);
}

// Waits until the stage of step `number` is free. `empty`: the first of the stages' mbarriers.
static __device__ __forceinline__ void wide_stage_wait(uint32_t empty, int number, int stages)
{
    if (number >= stages)
        barrier_wait(empty + number % stages * 8, (uint32_t)(number / stages - 1) & 1);
}

// Prefetches `bytes` of each row of a query block into L2. Rows are `stride` bytes apart. Called by
// a warp.
template <class C>
__device__ __forceinline__ void wide_rows_fetch(const void *from, int64_t stride, int bytes)
{
    constexpr int LINE = 128;
#pragma unroll 1
    for (int row = (int)threadIdx.x % WARP_LANES; row < C::Q_ROWS; row += WARP_LANES)
        for (int byte = 0; byte < bytes; byte += LINE)
            asm volatile("prefetch.global.L2 [%0];" ::"l"((const char *)from + row * stride + byte)
                         : "memory");
}

// Prefetches into L2 the bias of the block that comes after `block`, and the part of dbias to which
// its gradient is added, so that they arrive during the step before. Only if all queries of that
// block see all keys. Called by a warp.
template <class C>
__device__ __forceinline__ void
wide_bias_fetch(const struct backward_params &p, const struct sm90_work &work,
                const struct backward_fragment *f, int head, int block)
{
    block += p.reversed ? 1 : -1;
    const int first = block * C::Q_ROWS;
    const int rows = min(C::Q_ROWS, f->q_len - first);
    if (block < f->block_begin || block >= f->block_end || !step_is_whole<C>(work, f, first, rows))
        return;
    const int64_t stride = p.bias_query_stride,
                  at = head * p.bias_head_stride + f->bias + first * stride;
    wide_rows_fetch<C>((const uint16_t *)p.bias + at, stride * 2, C::TILE * 2);
    if (p.dbias && !p.dbias_once)
        wide_rows_fetch<C>(p.dbias + at, stride * 4, C::TILE * 4);
}

// The warp that loads LSE and D of all steps, and the bias if it is staged (BIASED).
template <typename T, class C>
__device__ __forceinline__ void wide_numbers_load(const struct sm90_backward_params &p,
                                                  const struct sm90_work &work, char *memory,
                                                  uint32_t shared)
{
    if constexpr (C::BIASED)
        numbers_load<T, C>(
            p, work, memory, shared,
            [&](const struct backward_fragment *f, int head, int first, int rows, int number) {
                bias_load<C>(p, work, f, head, first, rows, number, shared);
            });
    else
        numbers_load<T, C>(p, work, memory, shared, step_ignore);
}

// The warp that loads K and V, and then Q and dO of all steps.
template <class C>
__device__ __forceinline__ void wide_vectors_load(const struct sm90_backward_params &p,
                                                  const struct sm90_work &work, uint32_t shared)
{
    const struct backward_params &all = p.all;
    uint32_t kv_full = shared + C::KV_FULL;
    tile_load<C::TILE, C::QK_PANELS>(shared + C::K, &p.k, all.k, all, all.kv_heads, all.d_qk,
                                     work.kv_y, work.kv_z, work.rows, kv_full);
    tile_load<C::TILE, C::V_PANELS>(shared + C::V, &p.v, all.v, all, all.kv_heads, all.d_v,
                                    work.kv_y, work.kv_z, work.rows, kv_full);
    steps_visit(all, work, [&](const struct backward_fragment *f, int head, int block, int number) {
        int first = block * C::Q_ROWS, rows = min(C::Q_ROWS, f->q_len - first);
        int y = f->residue * all.heads + head, z = f->begin + first;
        int stage = number % C::STAGES, d_out_stage = number % C::DO_STAGES;
        wide_stage_wait(shared + C::EMPTY, number, C::STAGES);
        tile_load<C::Q_ROWS, C::QK_PANELS>(shared + C::Q + stage * C::Q_BYTES, &p.q, all.q, all,
                                           all.heads, all.d_qk, y, z, rows,
                                           shared + C::FULL + stage * 8);
        wide_stage_wait(shared + C::DO_EMPTY, number, C::DO_STAGES);
        tile_load<C::Q_ROWS, C::V_PANELS>(shared + C::DO + d_out_stage * C::DO_BYTES, &p.d_out,
                                          all.d_out, all, all.heads, all.d_v, y, z, rows,
                                          shared + C::DO_FULL + d_out_stage * 8);
        if constexpr (!C::GENERAL && !C::CAPPED)
            gradients_fetch<C, C::TILE, C::QK_PANELS, C::V_PANELS>(p, work, number);
        if constexpr (C::BOTH)
            wide_bias_fetch<C>(all, work, f, head, block);
    });
}

#endif
