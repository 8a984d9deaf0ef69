// SPDX-License-Identifier: Apache-2.0
// Backward for 16-bit types on sm_90a: wgmma, copies by tensor maps, specialised warps.
//
// A thread block owns a tile of 128 keys of one key head, K and V in shared memory. Two warpgroups
// have 64 keys each, and dK and dV of them in registers. Blocks of queries pass by:
//   S' = K Q', dP' = V dO' | P', dS' in registers, dS in shared memory | dV += P' dO, dK += dS' Q,
//   dQ = dS K, a half by each warpgroup
// The third warpgroup has a warp that loads, blocks ahead of the others, and two that add dQ to
// memory. Whole blocks and tiles travel by tensor maps. Of others, and of what lies outside of
// them, no element is read or written: those go row by row.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_KERNEL_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_KERNEL_CUH

#include "kernels/cuda/sm90_backward.h"
#include "kernels/cuda/sm90_backward_parts.cuh"

#define SM90_BACKWARD_THREADS (3 * GROUP_THREADS)
#define CONSUMER_THREADS      (2 * GROUP_THREADS)
#define KV_ROWS               128
#define PANEL                 64 // elements of 16 bits in 128 bytes
#define PANEL_FLOATS          32

// Tensors of rows, heads and elements: x is the element, y the head of a row modulo row_step (head
// + row % row_step * heads), z the row / row_step. Boxes are a panel wide.
struct sm90_backward_params {
    CUtensorMap q, d_out, k, v, dq, dk, dv;
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
    int32_t block; // number of the block and head in `taken`
};

template <int D_, int Q_ROWS_, int DQ_STAGES_> struct sm90_backward_config {
    static constexpr int D = D_, Q_ROWS = Q_ROWS_, PANELS = D / PANEL;
    static constexpr int SCORES = Q_ROWS / 2, KEYS = D / 2; // accumulators of a thread
    // The warpgroups share dQ by elements where there are two panels, else by queries.
    static constexpr int DQ_ROWS = PANELS == 2 ? Q_ROWS : Q_ROWS / 2, QUERIES = DQ_ROWS / 2;
    static constexpr int STAGES = 2, DQ_STAGES = DQ_STAGES_, STEPS = 8;
    // Shared memory, in bytes from its beginning.
    static constexpr int KV_PANEL = KV_ROWS * PANEL * 2, Q_PANEL = Q_ROWS * PANEL * 2;
    static constexpr int KV_BYTES = PANELS * KV_PANEL, Q_BYTES = PANELS * Q_PANEL;
    static constexpr int DS_PANEL = Q_PANEL, DS_BYTES = 2 * DS_PANEL;
    static constexpr int DQ_PANEL = DQ_ROWS * PANEL_FLOATS * 4, DQ_BYTES = 2 * DQ_PANEL;
    static constexpr int K = 0, V = K + KV_BYTES, Q = V + KV_BYTES, DO = Q + STAGES * Q_BYTES;
    static constexpr int DS = DO + STAGES * Q_BYTES, DQ = DS + STAGES * DS_BYTES;
    static constexpr int LSE = DQ + 2 * DQ_STAGES * DQ_BYTES, DELTA = LSE + STAGES * Q_ROWS * 4;
    static constexpr int STEP = DELTA + STAGES * Q_ROWS * 4;
    static constexpr int FULL = STEP + STEPS * (int)sizeof(struct sm90_step);
    static constexpr int EMPTY = FULL + STAGES * 8, KV_FULL = EMPTY + STAGES * 8;
    static constexpr int UNIT = KV_FULL + 16;
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
    BARRIER_DS = 1,       // dS is written
    BARRIER_DQ_FULL = 2,  // and the next three: dQ of a stage and a warpgroup is written
    BARRIER_DQ_EMPTY = 6, // and the next three: it was read
    BARRIER_GROUP = 10,   // and the next: of a warpgroup alone
};
#define DQ_THREADS (GROUP_THREADS + WARP_LANES)

// Bytes from the beginning of a tile in panels of `panel` bytes to a chunk of a row.
static __device__ __forceinline__ uint32_t panel_offset(unsigned panel, unsigned row,
                                                        unsigned chunk)
{
    return (uint32_t)(chunk / 8 * panel + row * 128 + ((chunk ^ row) & 7) * CHUNK_BYTES);
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

// Number of a row and head in [rows][heads].
static __device__ __forceinline__ int64_t vector_of(const struct backward_params &p, int32_t heads,
                                                    int32_t y, int32_t z)
{
    return z * (p.row_step * heads) + y;
}

// ---- loads --------------------------------------------------------------------------------------

// `rows` rows of d elements into a tile; the rest of it is cleared. By one warp, which returns when
// matrix products may read it, if a barrier follows.
template <class C, int ROWS>
__device__ __forceinline__ void rows_load(uint32_t tile, const void *source, int64_t stride,
                                          int rows, int d)
{
    constexpr int CHUNKS = C::D / CHUNK_ELEMENTS;
#pragma unroll 1
    for (int i = (int)threadIdx.x % WARP_LANES; i < ROWS * CHUNKS; i += WARP_LANES) {
        int row = i / CHUNKS, chunk = i % CHUNKS;
        bool there = row < rows && chunk * CHUNK_ELEMENTS < d;
        const char *from = (const char *)source + row * stride * 2 + chunk * CHUNK_BYTES;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(tile + panel_offset(ROWS * 128, row, chunk)),
                       "l"(there ? from : (const char *)source), "r"(there ? 16 : 0)
                     : "memory");
    }
    asm volatile("cp.async.wait_all;" : : : "memory");
    shared_fence();
}

template <class C>
__device__ __forceinline__ void keys_load(const struct sm90_backward_params &p,
                                          const struct sm90_work &work, uint32_t shared)
{
    uint32_t barrier = shared + C::KV_FULL;
    bool leader = threadIdx.x % WARP_LANES == 0;
    if (work.rows == KV_ROWS) {
        if (!leader)
            return;
        barrier_expect(barrier, 2 * C::KV_BYTES);
        for (int i = 0; i < C::PANELS; i++) {
            uint32_t to = shared + i * C::KV_PANEL;
            tensor_load_4d(to + C::K, &p.k, i * PANEL, work.kv_z, work.kv_y, 0, barrier);
            tensor_load_4d(to + C::V, &p.v, i * PANEL, work.kv_z, work.kv_y, 0, barrier);
        }
        return;
    }
    const struct backward_params &all = p.all;
    int64_t stride = all.row_step * all.kv_heads;
    int64_t vector = vector_of(all, all.kv_heads, work.kv_y, work.kv_z);
    rows_load<C, KV_ROWS>(shared + C::K, (const uint16_t *)all.k + vector * all.d_qk,
                          stride * all.d_qk, work.rows, all.d_qk);
    rows_load<C, KV_ROWS>(shared + C::V, (const uint16_t *)all.v + vector * all.d_v,
                          stride * all.d_v, work.rows, all.d_v);
    __syncwarp();
    if (leader)
        barrier_arrive(barrier);
}

template <class C>
__device__ __forceinline__ void queries_load(const struct sm90_backward_params &p, int y, int z,
                                             int rows, int stage, uint32_t shared)
{
    uint32_t barrier = shared + C::FULL + stage * 8;
    uint32_t q = shared + C::Q + stage * C::Q_BYTES, d_out = shared + C::DO + stage * C::Q_BYTES;
    bool leader = threadIdx.x % WARP_LANES == 0;
    if (rows == C::Q_ROWS) {
        if (!leader)
            return;
        barrier_expect(barrier, 2 * C::Q_BYTES);
        for (int i = 0; i < C::PANELS; i++)
            tensor_load_4d(q + i * C::Q_PANEL, &p.q, i * PANEL, z, y, 0, barrier);
        for (int i = 0; i < C::PANELS; i++)
            tensor_load_4d(d_out + i * C::Q_PANEL, &p.d_out, i * PANEL, z, y, 0, barrier);
        return;
    }
    const struct backward_params &all = p.all;
    int64_t stride = all.row_step * all.heads, vector = vector_of(all, all.heads, y, z);
    rows_load<C, C::Q_ROWS>(q, (const uint16_t *)all.q + vector * all.d_qk, stride * all.d_qk, rows,
                            all.d_qk);
    rows_load<C, C::Q_ROWS>(d_out, (const uint16_t *)all.d_out + vector * all.d_v, stride * all.d_v,
                            rows, all.d_v);
    __syncwarp();
    if (leader)
        barrier_arrive(barrier);
}

// Calls visit(fragment, head, block, number) for each step: heads, of each the fragments, of each
// the blocks from the last to the first; fragments and blocks the other way where that is reversed.
template <class F>
__device__ __forceinline__ void steps_visit(const struct backward_params &p,
                                            const struct sm90_work &work, F visit)
{
    int first = work.tile->fragment, count = work.tile->fragment_count, number = 0;
#pragma unroll 1
    for (int head = work.head; head < work.head_end; head++)
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            const struct backward_fragment *f =
                &p.fragments[p.reversed ? first + count - 1 - i : first + i];
            int block = p.reversed ? f->block_begin : f->block_end - 1;
            int step = p.reversed ? 1 : -1;
#pragma unroll 1
            for (int left = f->block_end - f->block_begin; left > 0; left--, number++) {
                visit(f, head, block, number);
                block += step;
            }
        }
}

// Waits until the stage of a step is free.
template <class C> __device__ __forceinline__ void stage_wait(int number, uint32_t shared)
{
    if (number >= C::STAGES)
        barrier_wait(shared + C::EMPTY + number % C::STAGES * 8,
                     (uint32_t)(number / C::STAGES - 1) & 1);
}

// The warp that loads K, V, and Q and dO of all steps.
template <class C>
__device__ __forceinline__ void vectors_load(const struct sm90_backward_params &p,
                                             const struct sm90_work &work, uint32_t shared)
{
    const struct backward_params &all = p.all;
    keys_load<C>(p, work, shared);
    steps_visit(all, work, [&](const struct backward_fragment *f, int head, int block, int number) {
        int first = block * C::Q_ROWS, rows = min(C::Q_ROWS, f->q_len - first);
        stage_wait<C>(number, shared);
        queries_load<C>(p, f->residue * all.heads + head, f->begin + first, rows,
                        number % C::STAGES, shared);
    });
}

// What dS is multiplied by before it is rounded: the scale, where the type's range allows it.
template <typename T> __device__ __forceinline__ float early_scale(const struct backward_params &p)
{
    return type_is_half<T>::value ? 1.0f : p.scale;
}

template <class C>
__device__ __forceinline__ void
step_write(const struct backward_params &p, const struct sm90_work &work,
           const struct backward_fragment *f, int head, int block, int turn, struct sm90_step *step)
{
    int first = block * C::Q_ROWS, rows = min(C::Q_ROWS, f->q_len - first);
    int low = f->low + first, high = f->high + first;
    bool masked = rows < C::Q_ROWS || work.rows < KV_ROWS || low > 1 - rows || high < KV_ROWS - 1;
    step->y = f->residue * p.heads + head;
    step->z = f->begin + first;
    step->rows = rows;
    step->low = low;
    step->high = high;
    step->keys = masked ? work.rows : 0;
    step->turn = turn;
    step->block = (f->block_first + block) * p.heads + head;
}

// The warp that loads the numbers of all steps: LSE in base 2, +inf for -inf and where there is no
// row, so that all P are 0; D times early_scale(). They are read, and the step is written, before
// the stage is free: the stage before was, so nobody needs the step that lies there.
template <typename T, class C>
__device__ __forceinline__ void numbers_load(const struct sm90_backward_params &p,
                                             const struct sm90_work &work, char *memory,
                                             uint32_t shared)
{
    constexpr int COUNT = (C::Q_ROWS + WARP_LANES - 1) / WARP_LANES;
    const struct backward_params &all = p.all;
    int lane = (int)threadIdx.x % WARP_LANES;
    steps_visit(all, work, [&](const struct backward_fragment *f, int head, int block, int number) {
        int first = block * C::Q_ROWS, rows = min(C::Q_ROWS, f->q_len - first);
        int64_t at = head * all.q_rows + f->q_row + (first + lane) * all.row_step;
        float lse[COUNT], delta[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            bool there = lane + i * WARP_LANES < rows;
            lse[i] = there ? all.lse[at + i * WARP_LANES * all.row_step] : -INFINITY;
            delta[i] = there ? all.d[at + i * WARP_LANES * all.row_step] : 0;
        }
        int turn = all.turns ? all.turns[f->turn + block - f->block_begin] : 0;
        if (lane == 0)
            step_write<C>(all, work, f, head, block, turn,
                          (struct sm90_step *)(memory + C::STEP) + number % C::STEPS);
        stage_wait<C>(number, shared);
        float *to = (float *)(memory + C::LSE) + number % C::STAGES * C::Q_ROWS + lane;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            bool none = lse[i] == -INFINITY;
            if (i * WARP_LANES + lane < C::Q_ROWS) {
                to[i * WARP_LANES] = none ? INFINITY : lse[i] * LOG2_E;
                to[i * WARP_LANES + (C::DELTA - C::LSE) / 4] =
                    none ? 0 : delta[i] * early_scale<T>(all);
            }
        }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(shared + C::FULL + number % C::STAGES * 8);
    });
}

// ---- dQ -----------------------------------------------------------------------------------------

static __device__ __forceinline__ void counter_wait(const unsigned *counter, unsigned turn)
{
    unsigned now;
    do
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    while (now != turn);
}

static __device__ __forceinline__ void counter_set(unsigned *counter, unsigned turn)
{
    asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(counter), "r"(turn) : "memory");
}

// Adds a part of dQ of `rows` rows, row by row, as a warp.
template <class C>
__device__ __forceinline__ void dq_add_rows(const struct backward_params &p, int64_t vector, int x,
                                            int rows, uint32_t from)
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
                add_float(to + row * stride + panel * PANEL_FLOATS, sum);
        }
}

// One of the warps that add dQ: that of warpgroup `group`.
template <class C>
__device__ __forceinline__ void dq_add_all(const struct sm90_backward_params &p, int group,
                                           int steps, const char *memory, uint32_t shared)
{
    const struct backward_params &all = p.all;
    const struct sm90_step *ring = (const struct sm90_step *)(memory + C::STEP);
    int x = C::PANELS == 2 ? group * PANEL : 0, below = C::PANELS == 2 ? 0 : group * C::DQ_ROWS;
    bool leader = threadIdx.x % WARP_LANES == 0, ordered = all.taken != NULL;
#pragma unroll 1
    for (int number = 0; number < steps; number++) {
        int part = number % C::DQ_STAGES * 2 + group;
        uint32_t from = shared + C::DQ + part * C::DQ_BYTES;
        threads_sync(BARRIER_DQ_FULL + part, DQ_THREADS);
        const struct sm90_step *step = &ring[number % C::STEPS];
        int y = step->y, z = step->z + below, rows = min(step->rows - below, C::DQ_ROWS);
        unsigned *counter = all.taken + (int64_t)step->block * BACKWARD_WARPS + group;
        unsigned turn = (unsigned)step->turn;
        if (ordered) {
            if (leader)
                counter_wait(counter, turn);
            __syncwarp();
        }
        if (rows == C::DQ_ROWS && leader) {
            if (ordered)
                fence_all();
            tensor_add_4d(&p.dq, x, z, y, 0, from);
            tensor_add_4d(&p.dq, x + PANEL_FLOATS, z, y, 0, from + C::DQ_PANEL);
            bulk_commit();
            bulk_wait_read();
        }
        if (rows < C::DQ_ROWS)
            dq_add_rows<C>(all, vector_of(all, all.heads, y, z), x, rows, from);
        __syncwarp();
        if (number + C::DQ_STAGES < steps)
            threads_arrive(BARRIER_DQ_EMPTY + part, DQ_THREADS);
        if (ordered && leader) {
            bulk_wait();
            fence_all();
            counter_set(counter, turn + 1);
        }
    }
}

// ---- P and dS -----------------------------------------------------------------------------------

// Makes the scores of a thread that its query does not see such that their P is 0.
template <class C>
__device__ __forceinline__ void scores_hide(const struct sm90_step *step, float hidden,
                                            float (&s)[C::SCORES])
{
    unsigned thread = thread_number(), lane = thread % WARP_LANES;
    int keys = step->keys, key = (int)((thread / WARP_LANES - 4) * 16 + lane / 4);
    int first = key - (int)(lane % 4 * 2) - step->low;
    unsigned span = (unsigned)(step->high - step->low) + 1;
    unsigned spans[2] = {key < keys ? span : 0, key + 8 < keys ? span : 0};
#pragma unroll
    for (int i = 0; i < C::SCORES; i++) {
        int h = i / 2 % 2, query = i / 4 * 8 + i % 2;
        if ((unsigned)(first + h * 8 - query) >= spans[h])
            s[i] = hidden;
    }
}

// Two neighbours of one row each.
static __device__ __forceinline__ float2 shared_pair(uint32_t address)
{
    float2 pair;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(pair.x), "=f"(pair.y)
                 : "r"(address)
                 : "memory");
    return pair;
}

// Where this lane's row of the first four matrices of dS is.
template <class C>
__device__ __forceinline__ uint32_t ds_place(int group, int stage, uint32_t shared)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    return shared + C::DS + stage * C::DS_BYTES + group * C::DS_PANEL +
           panel_offset(0, lane % 8 + lane / 16 * 8, thread / WARP_LANES * 2 + lane / 8 % 2);
}

// Four 8 x 8 matrices; lane 8 i + r gives the address of row r of matrix i, in which this lane's
// pair of it is a column's.
static __device__ __forceinline__ void matrices_store(uint32_t address, const uint32_t (&pairs)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                 : "memory");
}

// ---- consumers ----------------------------------------------------------------------------------

// Adds a thread's part of dK or dV, times factor, to memory, row by row.
template <class C>
__device__ __forceinline__ void
keys_add_rows(const struct backward_params &p, const struct sm90_work &work, int key, int d,
              const float (&acc)[C::KEYS], float *gradient, float factor)
{
    int column = (int)threadIdx.x % 4 * 2;
    int64_t vector = vector_of(p, p.kv_heads, work.kv_y, work.kv_z);
    int64_t stride = p.row_step * p.kv_heads * d;
    float *to = gradient + vector * d + key * stride + column;
#pragma unroll
    for (int i = 0; i < C::KEYS; i += 2) {
        int h = i / 2 % 2, x = i / 4 * 8;
        if (key + h * 8 < work.rows && column + x < d)
            add_pair(to + h * 8 * stride + x, acc[i] * factor, acc[i + 1] * factor);
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

// dK and dV of a warpgroup to memory; where several heads add to the same, in their order.
template <class C>
__device__ __forceinline__ void
keys_add(const struct sm90_backward_params &p, const struct sm90_work &work, int group,
         float dk_factor, const float (&dk)[C::KEYS], const float (&dv)[C::KEYS], uint32_t shared)
{
    const struct backward_params &all = p.all;
    bool leader = threadIdx.x % GROUP_THREADS == 0, whole = work.rows == KV_ROWS;
    unsigned *counter = NULL, turn = 0;
    if (all.tickets && all.by_query_head && all.group > 1) {
        int64_t tile = work.tile - all.tiles;
        counter = all.taken_keys + (tile * all.kv_heads + work.kv_head) * BACKWARD_WARPS + group;
        turn = (unsigned)(work.unit_head - max(0, work.kv_head * all.group - all.head_phase));
    }
    threads_sync(BARRIER_DS, CONSUMER_THREADS); // both have read all there was
    uint32_t dv_from = shared + C::K + group * C::KEY_BYTES;
    uint32_t dk_from = shared + C::Q + group * C::KEY_BYTES;
    if (whole) {
        keys_stage<C>(dv, dv_from, 1);
        keys_stage<C>(dk, dk_from, dk_factor);
        shared_fence();
    }
    if (counter && leader)
        counter_wait(counter, turn);
    threads_sync(BARRIER_GROUP + group, GROUP_THREADS);
    if (whole && leader) {
        fence_all();
        int z = work.kv_z + group * 64;
        for (int i = 0; i < 2 * C::PANELS; i++)
            tensor_add_4d(&p.dv, i * PANEL_FLOATS, z, work.kv_y, 0, dv_from + i * C::KEY_PANEL);
        for (int i = 0; i < 2 * C::PANELS; i++)
            tensor_add_4d(&p.dk, i * PANEL_FLOATS, z, work.kv_y, 0, dk_from + i * C::KEY_PANEL);
        bulk_commit();
        bulk_wait_read();
    }
    if (!whole) {
        int thread = (int)threadIdx.x % GROUP_THREADS, lane = thread % WARP_LANES;
        int key = group * 64 + thread / WARP_LANES * 16 + lane / 4;
        keys_add_rows<C>(all, work, key, all.d_v, dv, all.dv, 1);
        keys_add_rows<C>(all, work, key, all.d_qk, dk, all.dk, dk_factor);
    }
    if (!counter)
        return;
    __threadfence();
    threads_sync(BARRIER_GROUP + group, GROUP_THREADS);
    if (leader) {
        bulk_wait();
        fence_all();
        counter_set(counter, turn + 1);
    }
}

// Writes a thread's part of dQ, elements x queries, to shared memory, queries x elements.
template <class C>
__device__ __forceinline__ void dq_stage(const float (&dq)[C::QUERIES], float factor, uint32_t to)
{
    unsigned thread = (unsigned)thread_number() % GROUP_THREADS, lane = thread % WARP_LANES;
    unsigned x = thread / WARP_LANES * 16 + lane / 4, query = lane % 4 * 2;
    uint32_t at[4]; // by element and query
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

template <typename T, class C>
__device__ __forceinline__ void consume(const struct sm90_backward_params &p, int steps, int group,
                                        char *memory, uint32_t shared)
{
    constexpr bool HALF = type_is_half<T>::value;
    float factor = p.all.product_factor, scale = p.all.scale;
    float dk[C::KEYS], dv[C::KEYS];
#pragma unroll
    for (int i = 0; i < C::KEYS; i++)
        dk[i] = dv[i] = 0;
    const uint64_t k_rows = operand_rows(shared + C::K + group * 64 * 128);
    const uint64_t v_rows = operand_rows(shared + C::V + group * 64 * 128);
    const uint64_t k_columns =
        operand_columns(shared + C::K + (C::PANELS == 2 ? group * C::KV_PANEL : 0), C::KV_PANEL);
    barrier_wait(shared + C::KV_FULL, 0);
#pragma unroll 1
    for (unsigned number = 0; number < (unsigned)steps; number++) {
        int stage = number & (C::STAGES - 1);
        uint32_t q = shared + C::Q + stage * C::Q_BYTES, d_out = q + (C::DO - C::Q);
        float s[C::SCORES], dp[C::SCORES];
        barrier_wait(shared + C::FULL + stage * 8, (uint32_t)(number / C::STAGES) & 1);
        product_begin();
        const uint64_t q_rows = operand_rows(q), d_out_rows = operand_rows(d_out);
        product_of<T, C::D / 16, false>(s, along<C::KV_PANEL>{k_rows}, along<C::Q_PANEL>{q_rows});
        product_commit();
        product_of<T, C::D / 16, false>(dp, along<C::KV_PANEL>{v_rows},
                                        along<C::Q_PANEL>{d_out_rows});
        product_commit();
        const struct sm90_step *step = (const struct sm90_step *)(memory + C::STEP);
        step += number % C::STEPS;
        product_wait<1>();
        registers_settle(s);
        if (step->keys != 0)
            scores_hide<C>(step, p.all.product_factor < 0 ? INFINITY : -INFINITY, s);
        uint32_t lse = shared + C::LSE + (unsigned)thread_number() % 4 * 8 + stage * C::Q_ROWS * 4;
        uint32_t delta = lse + (C::DELTA - C::LSE);
#pragma unroll
        for (int i = 0; i < C::SCORES; i += 4) {
            float2 l = shared_pair(lse + i / 4 * 32);
            s[i] = fast_exp2(fmaf(s[i], factor, -l.x));
            s[i + 1] = fast_exp2(fmaf(s[i + 1], factor, -l.y));
            s[i + 2] = fast_exp2(fmaf(s[i + 2], factor, -l.x));
            s[i + 3] = fast_exp2(fmaf(s[i + 3], factor, -l.y));
        }
        product_wait<0>();
        registers_settle(dp);
        uint32_t p16[C::SCORES / 8][4], ds16[C::SCORES / 8][4];
#pragma unroll
        for (int i = 0; i < C::SCORES; i += 4) {
            float2 d = shared_pair(delta + i / 4 * 32);
            float x[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float sum = k % 2 ? d.y : d.x;
                x[k] = s[i + k] * (HALF ? dp[i + k] - sum : fmaf(dp[i + k], scale, -sum));
            }
            int half = i / 4 % 2 * 2;
            p16[i / 8][half] = pack<T>(s[i], s[i + 1]);
            p16[i / 8][half + 1] = pack<T>(s[i + 2], s[i + 3]);
            ds16[i / 8][half] = pack<T>(x[0], x[1]);
            ds16[i / 8][half + 1] = pack<T>(x[2], x[3]);
        }
        product_begin();
        const uint64_t q_columns = operand_columns(q, C::Q_PANEL);
        const uint64_t d_out_columns = operand_columns(d_out, C::Q_PANEL);
#pragma unroll
        for (int i = 0; i < C::Q_ROWS / 16; i++)
            product<T, C::D>::template rs<true>(dv, p16[i], across{d_out_columns}(i), true);
        product_commit();
        uint32_t ds = ds_place<C>(group, stage, shared);
#pragma unroll
        for (int i = 0; i < C::SCORES / 8; i++)
            matrices_store(ds + i * 16 * 128, ds16[i]);
        shared_fence();
        threads_sync(BARRIER_DS, CONSUMER_THREADS);
        float dq[C::QUERIES];
        const uint64_t ds_rows = operand_rows(shared + C::DS + stage * C::DS_BYTES +
                                              (C::PANELS == 2 ? 0 : group * 64 * 128));
        product_of<T, KV_ROWS / 16, true>(dq, across{k_columns}, along<C::DS_PANEL>{ds_rows});
        product_commit();
#pragma unroll
        for (int i = 0; i < C::Q_ROWS / 16; i++)
            product<T, C::D>::template rs<true>(dk, ds16[i], across{q_columns}(i), true);
        product_commit();
        product_wait<1>();
        registers_settle(dq);
        int part = (int)number % C::DQ_STAGES * 2 + group;
        if (number >= C::DQ_STAGES)
            threads_sync(BARRIER_DQ_EMPTY + part, DQ_THREADS);
        dq_stage<C>(dq, HALF ? scale : 1, shared + C::DQ + part * C::DQ_BYTES);
        shared_fence();
        threads_arrive(BARRIER_DQ_FULL + part, DQ_THREADS);
        product_wait<0>();
        registers_settle(dk);
        registers_settle(dv);
        if ((unsigned)thread_number() % WARP_LANES == 0)
            barrier_arrive(shared + C::EMPTY + stage * 8);
    }
    const struct sm90_work work = work_of(p.all, (const struct backward_unit *)(memory + C::UNIT));
    keys_add<C>(p, work, group, HALF ? scale : 1, dk, dv, shared);
}

// ---- kernel -------------------------------------------------------------------------------------

template <class C>
__device__ __forceinline__ void begin(const struct sm90_backward_params &p, char *memory,
                                      uint32_t shared)
{
    if (threadIdx.x == 0) {
        // Those who wait for each other take tickets, so that they began in that order.
        unsigned index = p.all.tickets ? atomicAdd(p.all.tickets, 1u) : blockIdx.x;
        struct backward_unit unit = unit_of(p.all, (int32_t)index);
        if (p.all.reversed)
            unit.tile = p.all.tile_count - 1 - unit.tile;
        *(struct backward_unit *)(memory + C::UNIT) = unit;
        for (int i = 0; i < C::STAGES; i++) {
            barrier_init(shared + C::FULL + i * 8, 2); // vectors, and numbers
            barrier_init(shared + C::EMPTY + i * 8, CONSUMER_THREADS / WARP_LANES);
        }
        barrier_init(shared + C::KV_FULL, 1);
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
            numbers_load<T, C>(p, work, memory, shared);
        else
            dq_add_all<C>(p, warp - 2, work.steps, memory, shared);
    } else {
        registers_acquire<240>();
        consume<T, C>(p, work.steps, group - 1, memory, shared);
    }
}

// ---- instantiations -----------------------------------------------------------------------------

typedef sm90_backward_config<64, 128, 1> sm90_backward_64;
typedef sm90_backward_config<128, 80, 1> sm90_backward_128;

template <typename T, class C> constexpr struct sm90_backward_kernel sm90_backward_instance()
{
    return {sm90_backward_run<T, C>, C::Q_ROWS, KV_ROWS, C::D, C::DQ_ROWS, C::BYTES};
}

template <typename T> const struct sm90_backward_kernel *sm90_backward_16(int d)
{
    static const struct sm90_backward_kernel all[] = {
        sm90_backward_instance<T, sm90_backward_64>(),
        sm90_backward_instance<T, sm90_backward_128>()};
    for (const struct sm90_backward_kernel &kernel : all)
        if (d <= kernel.d)
            return &kernel;
    return NULL;
}

#endif
