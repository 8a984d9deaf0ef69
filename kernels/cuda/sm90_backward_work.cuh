// SPDX-License-Identifier: Apache-2.0
// Backward on sm_90a: how shared memory is laid out, and what a thread block does.
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

// Tensors of rows, heads and elements: x is the element, y the head of a row modulo row_step (head
// + row % row_step * heads), z the row / row_step. Boxes are a panel wide.
struct sm90_backward_params {
    CUtensorMap q, d_out, k, v, dq, dk, dv;
    CUtensorMap bias, dbias; // where there are such, see sm90_matrix_map()
    bool bias_mapped, dbias_mapped;
    struct backward_params all;
};

// A block of queries of one head against the tile. Query i sees key j iff low <= j - i <= high, if
// both are there.
struct __align__(16) sm90_step
{
    int32_t y, z;
    int32_t rows;
    int32_t low, high;
    int32_t keys; // of the tile, if any query sees less than all of them or is not there; else 0
    int32_t turn;
    int32_t block;                 // number of the block and head in `taken`
    int64_t bias;                  // element of query 0 and key 0
    int32_t bias_column, bias_row; // of it in the maps
    int32_t dbias_staged;          // whether the gradient of the bias goes through shared memory
};

// ORDERED: adding to dQ waits for turns. CAPPED: with softcap. BIASED: with bias.
template <int D_, int Q_ROWS_, int DQ_STAGES_, bool ORDERED_, bool CAPPED_ = false,
          bool BIASED_ = false>
struct sm90_backward_config {
    static constexpr bool ORDERED = ORDERED_, CAPPED = CAPPED_, GENERAL = BIASED_;
    // Of a bias its gradient goes through shared memory, if it is wanted.
    static constexpr bool DBIAS = BIASED_ && !ORDERED_;
    static constexpr int D = D_, Q_ROWS = Q_ROWS_, TILE = KV_ROWS, PANELS = D / PANEL;
    static constexpr int SCORES = Q_ROWS / 2, KEYS = D / 2; // accumulators of a thread
    // The warpgroups share dQ by elements where there are two panels, else by queries.
    static constexpr int DQ_ROWS = PANELS == 2 ? Q_ROWS : Q_ROWS / 2, QUERIES = DQ_ROWS / 2;
    static constexpr int STAGES = 2, DQ_STAGES = DQ_STAGES_, STEPS = 8;
    // So many steps of 16 elements of K, and of V, a warpgroup keeps in registers, where there are
    // some to spare; and then a thread reads four of LSE or D at a time.
    static constexpr int HELD = D == 128 && !CAPPED && !GENERAL ? 2 : 0;
    static constexpr bool BY_FOURS = HELD > 0;
    static constexpr int DS_STAGES = GENERAL ? 1 : STAGES; // a bias takes the room of one
    // Shared memory, in bytes from its beginning.
    static constexpr int KV_PANEL = KV_ROWS * PANEL * 2, Q_PANEL = Q_ROWS * PANEL * 2;
    static constexpr int KV_BYTES = PANELS * KV_PANEL, Q_BYTES = PANELS * Q_PANEL;
    static constexpr int DS_PANEL = Q_PANEL, DS_BYTES = 2 * DS_PANEL;
    static constexpr int DQ_PANEL = DQ_ROWS * PANEL_FLOATS * 4, DQ_BYTES = 2 * DQ_PANEL;
    static constexpr int K = 0, V = K + KV_BYTES, Q = V + KV_BYTES, DO = Q + STAGES * Q_BYTES;
    static constexpr int DS = DO + STAGES * Q_BYTES, DQ = DS + DS_STAGES * DS_BYTES;
    // The bias, panels of 64 keys, and its gradient on its way to memory, panels of 32.
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
    // Gradients of the keys leave through what K and V, Q and dO were in.
    static constexpr int KEY_PANEL = PANEL * PANEL_FLOATS * 4, KEY_BYTES = 2 * PANELS * KEY_PANEL;
    static_assert(2 * KEY_BYTES <= Q && 2 * KEY_BYTES <= DS - Q, "gradients of keys fit");
};

// Barriers of warps.
enum {
    BARRIER_DS = 1,      // dS is written
    BARRIER_DQ_FULL = 2, // and the next three: dQ of an even or odd step and a warpgroup is written
    BARRIER_DQ_EMPTY = 6,     // and the next three: it was read
    BARRIER_GROUP = 10,       // and the next: of a warpgroup alone
    BARRIER_DBIAS_FULL = 12,  // and the next: the gradient of a warpgroup's bias is written
    BARRIER_DBIAS_EMPTY = 14, // and the next: it was read
};
#define DQ_THREADS (GROUP_THREADS + WARP_LANES)

// Arrives at a barrier in shared memory, once for a warp, when all of it are done.
static __device__ __forceinline__ void warp_arrive(uint32_t barrier)
{
    __syncwarp();
    if ((unsigned)thread_number() % WARP_LANES == 0)
        barrier_arrive(barrier);
}

// Bytes from the beginning of a tile in panels of `panel` bytes to a chunk of a row.
static __device__ __forceinline__ uint32_t panel_offset(unsigned panel, unsigned row,
                                                        unsigned chunk)
{
    return (uint32_t)(chunk / 8 * panel + row * 128 + ((chunk ^ row) & 7) * CHUNK_BYTES);
}

// Whether all of its queries and keys are there, seen or not.
template <class C> __device__ __forceinline__ bool step_is_there(const struct sm90_step *step)
{
    return step->keys == 0 || (step->rows == C::Q_ROWS && step->keys == C::TILE);
}

// ---- the work -----------------------------------------------------------------------------------

// What a thread block does: a tile against some query heads that share a key head.
struct sm90_work {
    const struct backward_tile *tile;
    int32_t head, head_end, kv_head, unit_head;
    int32_t kv_y, kv_z;
    int32_t rows;  // of the tile
    int32_t steps; // in all
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

// What one thread of a thread block takes. Those that wait for each other in a fixed order take
// tickets, so that they began in that order.
static __device__ __forceinline__ struct backward_unit unit_take(const struct backward_params &p)
{
    unsigned index = p.tickets ? atomicAdd(p.tickets, 1u) : blockIdx.x;
    struct backward_unit unit = unit_of(p, (int32_t)index);
    if (p.reversed && unit.tile < p.tile_count)
        unit.tile = p.tile_count - 1 - unit.tile;
    return unit;
}

// Number of a row and head in [rows][heads].
static __device__ __forceinline__ int64_t vector_of(const struct backward_params &p, int32_t heads,
                                                    int32_t y, int32_t z)
{
    return z * (p.row_step * heads) + y;
}

// What dS is multiplied by before it is rounded: the scale, where the type's range allows it.
template <typename T> __device__ __forceinline__ float early_scale(const struct backward_params &p)
{
    return type_is_half<T>::value ? 1.0f : p.scale;
}

// And what dK and dQ are multiplied by then.
template <typename T> __device__ __forceinline__ float late_scale(const struct backward_params &p)
{
    return type_is_half<T>::value ? p.scale : 1.0f;
}

#endif
