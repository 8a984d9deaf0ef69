// SPDX-License-Identifier: Apache-2.0
// Backward on sm_90a: layout of shared memory, named barriers, the work of a thread block.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_WORK_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_WORK_CUH

#include "kernels/cuda/backward_work.cuh"
#include "kernels/cuda/internal.h"
#include "kernels/cuda/sm90_backward_instances.h"
#include "kernels/cuda/sm90_backward_parts.cuh"
#include "kernels/cuda/sm90_tensor.h"

#define SM90_BACKWARD_THREADS (3 * GROUP_THREADS)
#define CONSUMER_THREADS      (2 * GROUP_THREADS)
#define KV_ROWS               128
#define GROUP_KEYS            (KV_ROWS / 2)
#define PANEL                 64 // elements of 16 bits in 128 bytes
#define PANEL_FLOATS          32

// The maps q..dv are of tensors [rows][heads][d]. A box is addressed by (x, z, y, 0): x is the
// element, z = row / row_step, y = head + row % row_step * heads. A box is 128 bytes wide: 64
// elements of 16 bits or 32 floats.
struct sm90_backward_params {
    CUtensorMap q, d_out, k, v, dq, dk, dv;
    CUtensorMap bias, dbias; // see sm90_matrix_map(); set only if mapped
    bool bias_mapped, dbias_mapped;
    struct backward_params all;
};

// A step: one block of queries of one head against the tile. Query i of the block sees key j of the
// tile iff low <= j - i <= high, i < rows and j is a key of the tile.
struct __align__(16) sm90_step
{
    int32_t y, z; // coordinates of query 0, see struct sm90_backward_params
    int32_t rows; // queries of the block
    int32_t low, high;
    int32_t keys;  // 0: a whole block sees all of a whole tile, no mask; else the keys of the tile
    int32_t turn;  // number of steps of the same block that add to dQ before; 0 without turns
    int32_t block; // index of the block and head in `taken`
    int64_t bias;  // element of query 0 and key 0
    int32_t bias_column, bias_row; // that element's coordinates in the maps
    int32_t dbias_staged;          // whether dbias is staged in shared memory
};

// D: head dimension, 64 or 128. Q_ROWS: queries of a block. DQ_STAGES: buffers that stage dQ of a
// warpgroup. ORDERED: additions to dQ take turns, for a deterministic backward. CAPPED: with
// softcap. BIASED: with bias.
template <int D_, int Q_ROWS_, int DQ_STAGES_, bool ORDERED_, bool CAPPED_ = false,
          bool BIASED_ = false>
struct sm90_backward_config {
    static constexpr bool ORDERED = ORDERED_, CAPPED = CAPPED_, GENERAL = BIASED_;
    // dbias is staged in shared memory for the warps that add dQ. Else consumer threads add it.
    static constexpr bool DBIAS = BIASED_ && !ORDERED_;
    static constexpr int D = D_, Q_ROWS = Q_ROWS_, TILE = KV_ROWS, PANELS = D / PANEL;
    static constexpr int SCORES = Q_ROWS / 2, KEYS = D / 2; // accumulators of a thread
    // Each consumer warpgroup computes half of dQ: with two panels one of them, else half of the
    // queries. QUERIES: accumulators of dQ of a thread.
    static constexpr int DQ_ROWS = PANELS == 2 ? Q_ROWS : Q_ROWS / 2, QUERIES = DQ_ROWS / 2;
    static constexpr int STAGES = 2, DQ_STAGES = DQ_STAGES_, STEPS = 8;
    // The k-steps (16 elements each) of K and of V that a warpgroup holds in registers, if
    // registers are to spare. BY_FOURS: a thread reads four values of LSE or D at a time.
    static constexpr int HELD = D == 128 && !CAPPED && !GENERAL ? 2 : 0;
    static constexpr bool BY_FOURS = HELD > 0;
    static constexpr int DS_STAGES = GENERAL ? 1 : STAGES; // a bias takes the place of the second
    // Shared memory, in bytes from its beginning.
    static constexpr int KV_PANEL = KV_ROWS * PANEL * 2, Q_PANEL = Q_ROWS * PANEL * 2;
    static constexpr int KV_BYTES = PANELS * KV_PANEL, Q_BYTES = PANELS * Q_PANEL;
    static constexpr int DS_PANEL = Q_PANEL, DS_BYTES = 2 * DS_PANEL;
    static constexpr int DQ_PANEL = DQ_ROWS * PANEL_FLOATS * 4, DQ_BYTES = 2 * DQ_PANEL;
    static constexpr int K = 0, V = K + KV_BYTES, Q = V + KV_BYTES, DO = Q + STAGES * Q_BYTES;
    static constexpr int DS = DO + STAGES * Q_BYTES, DQ = DS + DS_STAGES * DS_BYTES;
    // The bias, in panels of 64 keys, and the staged dbias, in panels of 32 keys.
    static constexpr int BIAS_BOX = BIASED_ ? PANEL : 0, BIAS_PANEL = Q_ROWS * PANEL * 2;
    static constexpr int BIAS_BYTES = 2 * Q_ROWS * BIAS_BOX * 2;
    static constexpr int DBIAS_PANEL = Q_ROWS * PANEL_FLOATS * 4;
    static constexpr int DBIAS_BYTES = DBIAS ? 4 * DBIAS_PANEL : 0;
    static constexpr int BIAS = DQ + 2 * DQ_STAGES * DQ_BYTES, DBIAS_AT = BIAS + BIAS_BYTES;
    static constexpr int LSE = DBIAS_AT + DBIAS_BYTES, DELTA = LSE + STAGES * Q_ROWS * 4;
    static constexpr int STEP = DELTA + STAGES * Q_ROWS * 4;
    static constexpr int FULL = STEP + STEPS * (int)sizeof(struct sm90_step);
    static constexpr int EMPTY = FULL + STAGES * 8, KV_FULL = EMPTY + STAGES * 8;
    static constexpr int BIAS_FULL = KV_FULL + 8, BIAS_EMPTY = BIAS_FULL + 8;
    static constexpr int DS_EMPTY = BIAS_EMPTY + 8, TOLD = DS_EMPTY + 8;
    static constexpr int UNIT = (TOLD + STEPS * 8 + 15) / 16 * 16;
    static constexpr int BYTES = UNIT + (int)sizeof(struct backward_unit);
    static_assert(DS % 1024 == 0 && DQ % 1024 == 0 && Q_PANEL % 1024 == 0 && DQ_PANEL % 1024 == 0,
                  "panels begin at multiples of 1024 bytes");
    static_assert(Q_ROWS % 16 == 0 && BYTES <= 227 * 1024, "it fits");
    // At the end dV is staged over K and V, dK over Q and dO.
    static constexpr int KEY_PANEL = PANEL * PANEL_FLOATS * 4, KEY_BYTES = 2 * PANELS * KEY_PANEL;
    static_assert(2 * KEY_BYTES <= Q && 2 * KEY_BYTES <= DS - Q, "gradients of keys fit");
};

// Named barriers. Those of dQ are numbered by dq_barrier(), those of dbias by warpgroup.
enum {
    BARRIER_DS = 1,           // both consumers: dS is stored; at the end: all stages are read
    BARRIER_DQ_FULL = 2,      // to 5: dQ of a step and a warpgroup is staged
    BARRIER_DQ_EMPTY = 6,     // to 9: the staged dQ has been read
    BARRIER_GROUP = 10,       // + group: that warpgroup alone
    BARRIER_DBIAS_FULL = 12,  // + group: dbias of a warpgroup's keys is staged
    BARRIER_DBIAS_EMPTY = 14, // + group: the staged dbias has been read
};
// At the barriers of dQ and dbias: a consumer warpgroup, and the warp that adds its dQ and dbias.
#define DQ_THREADS (GROUP_THREADS + WARP_LANES)

// Arrives at an mbarrier once for the whole warp, after all its lanes have come here.
static __device__ __forceinline__ void warp_arrive(uint32_t barrier)
{
    __syncwarp();
    if ((unsigned)thread_number() % WARP_LANES == 0)
        barrier_arrive(barrier);
}

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile with the 128-byte swizzle. `panel`:
// bytes of a panel.
static __device__ __forceinline__ uint32_t panel_offset(unsigned panel, unsigned row,
                                                        unsigned chunk)
{
    return (uint32_t)(chunk / 8 * panel + row * 128 + ((chunk ^ row) & 7) * CHUNK_BYTES);
}

// True if the step has a whole block of queries and a whole tile of keys, masked or not.
template <class C> __device__ __forceinline__ bool step_is_there(const struct sm90_step *step)
{
    return step->keys == 0 || (step->rows == C::Q_ROWS && step->keys == C::TILE);
}

// ---- the work -----------------------------------------------------------------------------------

// The work of a thread block: a tile against the query heads head..head_end - 1 of one key head.
struct sm90_work {
    const struct backward_tile *tile;
    int32_t head, head_end, kv_head, unit_head;
    int32_t kv_y, kv_z; // coordinates of key 0, see struct sm90_backward_params
    int32_t rows;       // keys of the tile
    int32_t steps;      // of all heads
};

static __device__ __forceinline__ struct sm90_work work_of(const struct backward_params &p,
                                                           const struct backward_unit *unit)
{
    struct sm90_work work;
    work.tile = &p.tiles[unit->tile];
    work.unit_head = unit->head_begin;
    work.kv_head = unit_kv_head(p, work.unit_head);
    work.head = work.unit_head;
    work.head_end = work.unit_head + 1;
    if (!p.by_query_head) {
        work.head = max(0, work.unit_head * p.group - p.head_phase);
        work.head_end = min(p.heads, (work.unit_head + 1) * p.group - p.head_phase);
    }
    work.kv_z = work.tile->begin;
    work.kv_y = work.tile->residue * p.kv_heads + work.kv_head;
    work.rows = work.tile->rows;
    work.steps = (int32_t)work.tile->steps * max(0, work.head_end - work.head);
    return work;
}

// Takes the thread block's unit of work. Called by one thread. Thread blocks that wait for each
// other's turns are numbered by tickets, in the order in which they start: a block waits only for
// blocks that have started.
static __device__ __forceinline__ struct backward_unit unit_take(const struct backward_params &p)
{
    unsigned index = p.tickets ? atomicAdd(p.tickets, 1u) : blockIdx.x;
    struct backward_unit unit = unit_of(p, (int32_t)index);
    if (p.reversed && unit.tile < p.tile_count)
        unit.tile = p.tile_count - 1 - unit.tile;
    return unit;
}

// Index in [rows][heads] of the row and head with coordinates y and z.
static __device__ __forceinline__ int64_t vector_of(const struct backward_params &p, int32_t heads,
                                                    int32_t y, int32_t z)
{
    return z * (p.row_step * heads) + y;
}

// Factor of dS before its rounding to T: the scale for bf16; 1 for fp16, whose range is too small.
template <typename T> __device__ __forceinline__ float early_scale(const struct backward_params &p)
{
    return type_is_half<T>::value ? 1.0f : p.scale;
}

// Factor of dK and dQ: the part of the scale that is not in early_scale().
template <typename T> __device__ __forceinline__ float late_scale(const struct backward_params &p)
{
    return type_is_half<T>::value ? p.scale : 1.0f;
}

#endif
