// SPDX-License-Identifier: Apache-2.0
// Forward on sm_90a: the compile-time shape of a kernel, and its producer warp.
#ifndef CPATTN_KERNELS_CUDA_SM90_FORWARD_LOAD_CUH
#define CPATTN_KERNELS_CUDA_SM90_FORWARD_LOAD_CUH

#include <limits.h>

#include <type_traits>

#include "kernels/cuda/sm90.cuh"
#include "kernels/cuda/sm90_forward.h"

#define GROUP_THREADS   128
#define GROUP_ROWS      64
#define SM90_BIAS_WARPS 3 // beside the producer warp of Q, K and V

// The shape of one instance.
// - DQK, DV: largest head dimensions, multiples of 16.
// - GROUPS: consumer warpgroups.
// - N, STAGES: keys of a block, and stages for blocks of K and V.
// - SLOTS: stages for tiles of Q.
// - GRID: a thread block computes one tile. Otherwise it is persistent: it takes tiles until none
//   is left.
// - FEATURES, BIAS_STAGES: mask of sm90_feature, and stages for blocks of bias.
template <typename TYPE, int DQK_, int DV_, int GROUPS_, int N_, int STAGES_, int SLOTS_,
          bool GRID_, int FEATURES_ = 0, int BIAS_STAGES_ = 2>
struct sm90_traits {
    static const bool MAX = (FEATURES_ & SM90_MAX) != 0, CAP = (FEATURES_ & SM90_CAP) != 0;
    static const bool BIAS = (FEATURES_ & SM90_BIAS) != 0;
    // Most blocks are weighed with the row maxima of earlier blocks (enum sm90_guess). Weights may
    // be large then; fp16 could not hold them. Above 192 without a bias it gains nothing.
    static const bool GUESS =
        std::is_same<TYPE, __nv_bfloat16>::value && !CAP && (BIAS || (!MAX && DQK_ <= 192));
    typedef TYPE T;
    static const int DQK = DQK_, DV = DV_, GROUPS = GROUPS_, N = N_;
    static const int STAGES = STAGES_, SLOTS = SLOTS_;
    static const bool GRID = GRID_;
    static const int ROWS = GROUPS * GROUP_ROWS, THREADS = (GROUPS + 1) * GROUP_THREADS;
    static const int REGISTERS_LOADING = GROUPS == 3 ? 32 : BIAS ? 40 : 24;
    static const int REGISTERS_COMPUTING = GROUPS == 3 ? 160 : BIAS ? 232 : 240;
    static const int LOADING_WARPS = BIAS ? 1 + SM90_BIAS_WARPS : 1;
    static const int Q_PANELS = (DQK + 63) / 64, V_PANELS = (DV + 63) / 64;
    static const int Q_PANEL = ROWS * SM90_PANEL_ROW_BYTES, KV_PANEL = N * SM90_PANEL_ROW_BYTES;
    static const int Q_BYTES = Q_PANELS * Q_PANEL;
    static const int K_BYTES = Q_PANELS * KV_PANEL, V_BYTES = V_PANELS * KV_PANEL;
    // Byte offsets in shared memory. FULL and EMPTY are the mbarriers of the stages, 8 bytes each.
    static const int K = SLOTS * Q_BYTES, V = K + STAGES * K_BYTES;
    static const int BIAS_STAGES = BIAS ? BIAS_STAGES_ : 0;
    static const bool BIAS_BOXES = N % SM90_PANEL_COLUMNS == 0; // the bias lies in panels
    static const int BIAS_ROW = N * 2, BIAS_BYTES = ROWS * BIAS_ROW;
    static const int BIAS_BLOCK = V + STAGES * V_BYTES;
    static const int Q_FULL = BIAS_BLOCK + BIAS_STAGES * BIAS_BYTES, Q_EMPTY = Q_FULL + 8 * SLOTS;
    static const int K_FULL = Q_EMPTY + 8 * SLOTS, K_EMPTY = K_FULL + 8 * STAGES;
    static const int V_FULL = K_EMPTY + 8 * STAGES, V_EMPTY = V_FULL + 8 * STAGES;
    static const int BIAS_FULL = V_EMPTY + 8 * STAGES, BIAS_EMPTY = BIAS_FULL + 8 * BIAS_STAGES;
    static const int TASK = BIAS_EMPTY + 8 * BIAS_STAGES;
    static const int SHARED_BYTES = TASK + SLOTS * (int)sizeof(struct sm90_task);
    static_assert(SHARED_BYTES <= 227 * 1024, "it fits");
    // Measured. Tiles with rows for few warpgroups leave the tensor cores idle part of the time.
    static constexpr struct forward_times TIMES =
        GROUPS == 3 ? forward_times{{37, 51, 64}, 150} : forward_times{{44, 64, 64}, 150};
    static_assert(KV_PANEL % 1024 == 0, "panels begin where the swizzle's pattern does");
};

// Position in a ring of COUNT stages: stage `place`, in a round with parity `phase`.
template <int COUNT> struct sm90_ring {
    int place;
    uint32_t phase;
    __device__ __forceinline__ void next()
    {
        if (++place == COUNT) {
            place = 0;
            phase ^= 1;
        }
    }
};

// ---- loading ------------------------------------------------------------------------------------

// Loads one block of K or V into a stage by TMA. Waits for the barrier `empty`, signals `full`.
// Called by one thread. `position`, `residue`: coordinates of the block's first key in the map.
template <class S, int PANELS>
__device__ __forceinline__ void block_load(uint32_t to, uint32_t full, uint32_t empty,
                                           uint32_t phase, const CUtensorMap *map, int position,
                                           int head, int residue)
{
    barrier_wait(empty, phase ^ 1);
    barrier_expect(full, PANELS * S::KV_PANEL);
#pragma unroll
    for (int panel = 0; panel < PANELS; panel++)
        tensor_load_4d(to + panel * S::KV_PANEL, map, panel * SM90_PANEL_COLUMNS, position, head,
                       residue, full);
}

// Loads K and V of a tile. With `take`, returns the number of the next tile, otherwise INT_MAX. It
// is taken from work.taken when as many blocks are left as there are stages, whose loads hide the
// latency.
template <class S>
__device__ __forceinline__ int tile_load_keys(const struct sm90_forward &args, uint32_t shared,
                                              const struct work_tile &tile, int kv_head, bool take,
                                              struct sm90_ring<S::STAGES> *ring)
{
    const struct forward_work &work = args.work;
    int left = tile.blocks, next = INT_MAX;
    for (int f = 0; f < tile.fragment_count; f++) {
        const struct work_fragment &fragment = work.fragments[tile.fragment + f];
        int position = (int)(fragment.kv_row / work.row_step);
        int residue = (int)(fragment.kv_row % work.row_step), keys = fragment.keys;
        for (int key = 0; key < keys; key += S::N) {
            if (take && left-- == min(tile.blocks, S::STAGES))
                next = (int)gridDim.x + atomicAdd(work.taken, 1);
            int at = ring->place;
            block_load<S, S::Q_PANELS>(shared + S::K + at * S::K_BYTES, shared + S::K_FULL + 8 * at,
                                       shared + S::K_EMPTY + 8 * at, ring->phase, &args.k,
                                       position + key, kv_head, residue);
            block_load<S, S::V_PANELS>(shared + S::V + at * S::V_BYTES, shared + S::V_FULL + 8 * at,
                                       shared + S::V_EMPTY + 8 * at, ring->phase, &args.v,
                                       position + key, kv_head, residue);
            ring->next();
        }
    }
    return next;
}

// Starts the TMA copy of a tile of Q to `to`, which signals `full`.
template <class S>
__device__ __forceinline__ void tile_load_queries(const struct sm90_forward &args, uint32_t to,
                                                  const struct work_tile &tile, int head,
                                                  uint32_t full)
{
    int position = (int)(tile.q_row / args.work.row_step);
    int residue = (int)(tile.q_row % args.work.row_step);
    barrier_expect(full, S::Q_BYTES);
#pragma unroll
    for (int panel = 0; panel < S::Q_PANELS; panel++)
        tensor_load_4d(to + panel * S::Q_PANEL, &args.q, panel * SM90_PANEL_COLUMNS, position, head,
                       residue, full);
}

// Waits until the slot is free. Returns a task that warps must compute again, if there is one: that
// of the slot or, if no other tile is left, of any slot.
template <class S>
__device__ __forceinline__ struct sm90_task *task_wait(uint32_t shared, struct sm90_task *tasks,
                                                       struct sm90_ring<S::SLOTS> slot, bool left)
{
    const int count = S::GUESS && !left ? S::SLOTS : 1;
    for (int i = 0; i < count; i++, slot.next()) {
        barrier_wait(shared + S::Q_EMPTY + 8 * slot.place, slot.phase ^ 1);
        if (S::GUESS && tasks[slot.place].lost)
            return &tasks[slot.place];
    }
    return NULL;
}

// Body of the producer thread of Q, K and V: loads tile after tile and describes each in `tasks`.
// Q_FULL signals both. Ends with a tile without blocks.
template <class S>
__device__ __forceinline__ void tiles_load(const struct sm90_forward &args, uint32_t shared,
                                           struct sm90_task *tasks)
{
    const struct forward_work &work = args.work;
    struct sm90_ring<S::STAGES> ring = {
        0, 0
    };
    struct sm90_ring<S::SLOTS> slot = {
        0, 0
    };
    int total = work.tile_count * work.heads, next = (int)blockIdx.x;
    for (;;) {
        struct sm90_task *lost = task_wait<S>(shared, tasks, slot, next < total);
        if (!lost && next >= total)
            break;
        const int number = lost ? lost->number : next;
        struct forward_place place = forward_place_of(work, number);
        struct work_tile tile = work.tiles[place.tile];
        struct sm90_task *task = &tasks[slot.place];
        uint32_t full = shared + S::Q_FULL + 8 * slot.place;
        task->again = lost ? lost->lost : 0;
        if (lost)
            lost->lost = 0;
        task->tile = tile;
        task->number = number;
        task->head = place.head;
        task->first = work.fragments[tile.fragment];
        task->last = work.fragments[tile.fragment + tile.fragment_count - 1];
        tile_load_queries<S>(args, shared + slot.place * S::Q_BYTES, tile, place.head, full);
        slot.next();
        int taken = tile_load_keys<S>(args, shared, tile, place.kv_head, !S::GRID && !lost, &ring);
        next = lost ? next : taken;
    }
    tasks[slot.place].tile.blocks = 0;
    barrier_arrive(shared + S::Q_FULL + 8 * slot.place);
}

#endif
