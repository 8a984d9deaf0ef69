// SPDX-License-Identifier: Apache-2.0
// Backward on sm_90a: the producer warps, which load ahead of the consumers.
#ifndef CPATTN_KERNELS_CUDA_SM90_BACKWARD_LOAD_CUH
#define CPATTN_KERNELS_CUDA_SM90_BACKWARD_LOAD_CUH

#include "kernels/cuda/sm90_backward_work.cuh"
#include "kernels/cuda/sm90_bias.cuh"

// Copies `rows` rows of d elements into a tile of ROWS x D and clears the rest of the tile.
// `stride`: elements between rows. Called by a warp. When it returns, the copies are complete and
// fenced; after a barrier wgmma may read the tile.
template <int D, int ROWS>
__device__ __forceinline__ void rows_load(uint32_t tile, const void *source, int64_t stride,
                                          int rows, int d)
{
    constexpr int CHUNKS = D / CHUNK_ELEMENTS;
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

// Loads K and V of the tile: a whole tile by TMA, a short one row by row. Arrives once at KV_FULL.
// Called by a warp.
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
    rows_load<C::D, KV_ROWS>(shared + C::K, (const uint16_t *)all.k + vector * all.d_qk,
                             stride * all.d_qk, work.rows, all.d_qk);
    rows_load<C::D, KV_ROWS>(shared + C::V, (const uint16_t *)all.v + vector * all.d_v,
                             stride * all.d_v, work.rows, all.d_v);
    __syncwarp();
    if (leader)
        barrier_arrive(barrier);
}

// Loads Q and dO of the block at coordinates y and z into a stage: a whole block by TMA, a short
// one row by row. Arrives once at FULL of the stage. Called by a warp.
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
    rows_load<C::D, C::Q_ROWS>(q, (const uint16_t *)all.q + vector * all.d_qk, stride * all.d_qk,
                               rows, all.d_qk);
    rows_load<C::D, C::Q_ROWS>(d_out, (const uint16_t *)all.d_out + vector * all.d_v,
                               stride * all.d_v, rows, all.d_v);
    __syncwarp();
    if (leader)
        barrier_arrive(barrier);
}

// Calls visit(fragment, head, block, number) for each step of the thread block: head by head, for
// each head the fragments from first to last, for each fragment the blocks from last to first. If
// p.reversed, fragments go from last to first and blocks from first to last.
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

// Waits until the consumers have freed the stage of step `number`.
template <class C> __device__ __forceinline__ void stage_wait(int number, uint32_t shared)
{
    if (number >= C::STAGES)
        barrier_wait(shared + C::EMPTY + number % C::STAGES * 8,
                     (uint32_t)(number / C::STAGES - 1) & 1);
}

// Coordinates of query 0 and key 0 of a step in the maps of the bias and dbias.
struct bias_box {
    int column, row;
    bool within; // boxes may begin there (aligned), and all keys of a whole tile are in the map
};

// `at`: element of query 0 and key 0 in the bias.
template <class C>
__device__ __forceinline__ struct bias_box bias_box_of(const struct backward_params &p, int64_t at)
{
    const int64_t stride = p.bias_query_stride, row = stride > 0 ? at / stride : 0;
    const int64_t column = at - row * stride;
    return {(int)column, (int)row,
            stride > 0 && at >= 0 && row < SM90_MATRIX_MOST && column + C::TILE <= stride &&
                column % CHUNK_ELEMENTS == 0};
}

// True if the block and the tile are whole and every query sees every key: no mask is needed.
template <class C>
__device__ __forceinline__ bool
step_is_whole(const struct sm90_work &work, const struct backward_fragment *f, int first, int rows)
{
    return rows == C::Q_ROWS && work.rows == C::TILE && f->low + first <= 1 - rows &&
           f->high + first >= C::TILE - 1;
}

// Prefetches into L2 the part of dbias to which a step will add: additions to prefetched lines are
// 1.2 to 1.4 times as fast. Called by a warp.
template <class C>
__device__ __forceinline__ void dbias_fetch(const struct sm90_backward_params &p,
                                            const struct bias_box &box)
{
    if (threadIdx.x % WARP_LANES == 0 && p.dbias_mapped && !p.all.dbias_once)
        for (int x = 0; x < C::TILE; x += PANEL_FLOATS)
            tensor_fetch_2d(&p.dbias, box.column + x, box.row);
}

// Byte offset of 16-byte chunk `chunk` of query `row` in the bias of a block, in the layout that
// TMA boxes leave: one box of BIAS_BOX keys after the other, swizzled if its rows have 128 or 64
// bytes.
template <class C> __device__ __forceinline__ uint32_t bias_offset(unsigned row, unsigned chunk)
{
    constexpr unsigned BYTES = C::BIAS_BOX * 2, CHUNKS = BYTES / CHUNK_BYTES;
    const unsigned turn = BYTES == 128 || BYTES == 64 ? row * BYTES / 128 % CHUNKS : 0;
    return chunk / CHUNKS * C::BIAS_PANEL + row * BYTES + ((chunk % CHUNKS) ^ turn) * CHUNK_BYTES;
}

// Loads the bias of a block, `rows` queries from `first` on, once the consumers have freed its
// single buffer; completes a phase of BIAS_FULL. A step without a mask goes by TMA. In other steps
// only the bias of visible scores is read, since no other need exist; the rest becomes 0. Called by
// a warp.
template <class C>
__device__ __forceinline__ void bias_load(const struct sm90_backward_params &params,
                                          const struct sm90_work &work,
                                          const struct backward_fragment *f, int head, int first,
                                          int rows, int number, uint32_t shared)
{
    const struct backward_params &p = params.all;
    constexpr int CHUNKS = C::TILE / CHUNK_ELEMENTS;
    const int lane = (int)threadIdx.x % WARP_LANES;
    const int64_t stride = p.bias_query_stride,
                  at = head * p.bias_head_stride + f->bias + first * stride;
    const uint32_t to = shared + C::BIAS, full = shared + C::BIAS_FULL;
    const struct bias_box box = bias_box_of<C>(p, at);
    const bool boxes = params.bias_mapped && box.within && step_is_whole<C>(work, f, first, rows);
    if (boxes)
        dbias_fetch<C>(params, box);
    barrier_wait(shared + C::BIAS_EMPTY, (uint32_t)(number - 1) & 1);
    if (boxes) {
        __syncwarp();
        if (lane != 0)
            return;
        shared_fence(); // orders the TMA writes after the lanes' earlier writes to the buffer
        barrier_expect(full, C::BIAS_BYTES);
        barrier_arrive_times(full, 2 * WARP_LANES - 1);
        const uint64_t policy = l2_policy(p.dbias_once);
        for (int i = 0; i < C::TILE / C::BIAS_BOX; i++)
            tensor_load_2d(to + i * C::BIAS_PANEL, &params.bias, box.column + i * C::BIAS_BOX,
                           box.row, policy, full);
        return;
    }
    const int low = f->low + first, high = f->high + first;
#pragma unroll 1
    for (int i = lane; i < C::Q_ROWS * CHUNKS; i += WARP_LANES) {
        const int row = i / CHUNKS, chunk = i % CHUNKS, key = chunk * CHUNK_ELEMENTS;
        const int begin = low + row - key, end = min(high + row + 1, work.rows) - key;
        bias_chunk_load(to + bias_offset<C>(row, chunk),
                        (const uint16_t *)p.bias + at + row * stride + key, begin,
                        row < rows ? end : 0);
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
    barrier_arrive(full); // for the chunks that were stored rather than copied
}

// Prefetches dK and dV of a whole tile into L2, STEPS_BEFORE steps before the end, in boxes of ROWS
// keys. QK_PANELS, V_PANELS: panels of 64 elements of dK and dV. Skipped where it would only be in
// the way: in a deterministic backward (turns), and with nothing to add to (keys_begin). Callers
// leave it out with a bias, which uses memory bandwidth itself, and with a softcap. Called by a
// warp.
template <class C, int ROWS, int QK_PANELS, int V_PANELS>
__device__ __forceinline__ void gradients_fetch(const struct sm90_backward_params &p,
                                                const struct sm90_work &work, int number)
{
    constexpr int STEPS_BEFORE = 8;
    if (p.all.tickets || p.all.keys_begin || number != max(0, work.steps - STEPS_BEFORE) ||
        work.rows < C::TILE || threadIdx.x % WARP_LANES != 0)
        return;
#pragma unroll 1
    for (int row = 0; row < C::TILE; row += ROWS) {
        for (int x = 0; x < V_PANELS * PANEL; x += PANEL_FLOATS)
            tensor_fetch_4d(&p.dv, x, work.kv_z + row, work.kv_y, 0);
        for (int x = 0; x < QK_PANELS * PANEL; x += PANEL_FLOATS)
            tensor_fetch_4d(&p.dk, x, work.kv_z + row, work.kv_y, 0);
    }
}

// The warp that loads K and V, then Q, dO and the bias of every step.
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
        if constexpr (!C::GENERAL && !C::CAPPED)
            gradients_fetch<C, GROUP_KEYS, C::PANELS, C::PANELS>(p, work, number);
        if constexpr (C::GENERAL)
            bias_load<C>(p, work, f, head, first, rows, number, shared);
    });
}

// Fills in a step of the ring.
template <class C>
__device__ __forceinline__ void
step_write(const struct sm90_backward_params &params, const struct sm90_work &work,
           const struct backward_fragment *f, int head, int block, int turn, struct sm90_step *step)
{
    const struct backward_params &p = params.all;
    int first = block * C::Q_ROWS, rows = min(C::Q_ROWS, f->q_len - first);
    int low = f->low + first, high = f->high + first;
    bool masked = !step_is_whole<C>(work, f, first, rows);
    step->y = f->residue * p.heads + head;
    step->z = f->begin + first;
    step->rows = rows;
    step->low = low;
    step->high = high;
    step->keys = masked ? work.rows : 0;
    step->turn = turn;
    step->block = (f->block_first + block) * p.heads + head;
    if (C::GENERAL)
        step->bias = head * p.bias_head_stride + f->bias + first * p.bias_query_stride;
    if (C::DBIAS) {
        const struct bias_box box = bias_box_of<C>(p, step->bias);
        step->bias_column = box.column;
        step->bias_row = box.row;
        bool there = !masked || (p.dbias_once && step_is_there<C>(step));
        step->dbias_staged = params.dbias_mapped && box.within && there;
    }
}

// For numbers_load(): does nothing after a step.
static __device__ __forceinline__ void step_ignore(const struct backward_fragment *, int, int, int,
                                                   int)
{
}

// Index at which LSE and D of query 0..31 of each 32 are stored. BY_FOURS: the four queries of each
// 16 that a consumer thread needs (2 t, 2 t + 1 and 8 further, t = lane % 4) are neighbours.
template <class C> __device__ __forceinline__ int numbers_place(int query)
{
    return C::BY_FOURS ? query / 16 * 16 + query % 8 / 2 * 4 + query / 8 % 2 * 2 + query % 2
                       : query;
}

// The warp that loads LSE and D of every step and fills in the ring of steps.
// - LSE is stored in base 2. For -inf, and for rows that do not exist, it becomes +inf, so that P
//   is 0. D is stored times early_scale(); with a bias as it is, because dbias needs dS unscaled.
// - LSE and D are read, and the step is written, before its stage is free. The stage of the step
//   before was free, so no warp needs the step that was in this place of the ring.
// - Each place of the ring has an mbarrier (TOLD) for warps that do not wait for Q and dO.
// - After each step, all lanes arrive at FULL of its stage and call
//   behind(fragment, head, first, rows, number).
template <typename T, class C, class F>
__device__ __forceinline__ void numbers_load(const struct sm90_backward_params &p,
                                             const struct sm90_work &work, char *memory,
                                             uint32_t shared, F behind)
{
    constexpr int COUNT = (C::Q_ROWS + WARP_LANES - 1) / WARP_LANES;
    const struct backward_params &all = p.all;
    const float factor = C::GENERAL ? 1 : early_scale<T>(all);
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
        if (lane == 0) {
            step_write<C>(p, work, f, head, block, turn,
                          (struct sm90_step *)(memory + C::STEP) + number % C::STEPS);
            barrier_arrive(shared + C::TOLD + number % C::STEPS * 8);
        }
        stage_wait<C>(number, shared);
        float *to =
            (float *)(memory + C::LSE) + number % C::STAGES * C::Q_ROWS + numbers_place<C>(lane);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            bool none = lse[i] == -INFINITY;
            if (i * WARP_LANES + lane < C::Q_ROWS) {
                to[i * WARP_LANES] = none ? INFINITY : lse[i] * LOG2_E;
                to[i * WARP_LANES + (C::DELTA - C::LSE) / 4] = none ? 0 : delta[i] * factor;
            }
        }
        barrier_arrive(shared + C::FULL + number % C::STAGES * 8);
        behind(f, head, first, rows, number);
    });
}

#endif
