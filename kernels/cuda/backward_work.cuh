// SPDX-License-Identifier: Apache-2.0
// Shared by the backward kernels: their parameters, the order in which a thread block visits its
// tiles and steps, and additions to gradients in turns.
#ifndef CPATTN_KERNELS_CUDA_BACKWARD_WORK_CUH
#define CPATTN_KERNELS_CUDA_BACKWARD_WORK_CUH

#include "kernels/cuda/cap_series.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/worklist_backward.h"

static const float LOG2_E = 1.4426950408889634f;

#define BACKWARD_THREADS 256
#define BACKWARD_WARPS   (BACKWARD_THREADS / WARP_LANES)

// Parameters of the backward kernels. Pointers are to device memory.
struct backward_params {
    const void *q, *k, *v, *d_out, *bias;
    const float *lse, *d;
    float *dq, *dk, *dv, *dbias;
    void *dk_out, *dv_out; // as in struct attention_backward; sm_90a kernels only
    const struct backward_tile *tiles;
    const struct backward_fragment *fragments;
    const int32_t *chains;
    // Counters of turns at dK and dV, [whole tile][kv_head][BACKWARD_WARPS], where several thread
    // blocks add to the same keys in turns. NULL otherwise.
    unsigned *taken_keys;
    // Deterministic only, NULL otherwise. tickets: number of thread blocks that have begun.
    // turns: the turn of each step. taken: number of turns taken at dQ, in
    // [block of queries][head][BACKWARD_WARPS].
    unsigned *tickets;
    const int32_t *turns;
    unsigned *taken;
    int32_t heads, kv_heads, group, head_phase, d_qk, d_v;
    int32_t chain_count, tile_count;
    // Tiles and fragments are processed from the last to the first, blocks from the first to the
    // last; otherwise the other way round. Pieces of the tail are stored in processing order.
    bool reversed;
    bool by_query_head; // a unit head is one query head; else a key head with all its query heads
    int32_t unit_heads; // heads if by_query_head, else kv_heads
    int32_t section_heads; // unit heads of a section; sections are processed one after the other
    // The last tail_heads unit heads have the tail_count tiles that follow the tile_count whole
    // tiles, see struct backward_worklist.
    int32_t tail_count, tail_heads;
    bool heads_chained; // a thread block takes a chain of tiles with all unit heads
    bool heads_dealt;   // see unit_head_at()
    bool vectors;       // rows of Q, K, V and dO: 16-byte aligned, multiples of 16 bytes
    bool pairs;         // rows of dQ, dK and dV: 8-byte aligned, multiples of 8 bytes
    int64_t row_step, q_rows;
    int64_t bias_head_stride, bias_query_stride; // in elements; 0: heads, or queries, share a bias
    bool dbias_once;                             // as in struct attention_shape
    // As in struct attention_backward: the first turn writes instead of adding. sm_90a kernels
    // only; queries_begin only in deterministic ones.
    bool queries_begin, keys_begin;
    float scale;
    // Factor of q.k: gives the logit in base 2 or, with a softcap, the argument of tanh.
    float product_factor;
    float cap_factor; // factor of the tanh: gives the capped logit in base 2; 0: no softcap
    struct cap_series cap_series; // for these two factors; sm_90a kernels only
};

// threadIdx.x, read from the special register by each call. This keeps addresses that depend on it
// out of registers, which the kernels are short of.
static __device__ __forceinline__ int thread_number(void)
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

// ---- thread blocks ------------------------------------------------------------------------------

// The work of a thread block: tiles [tile, tile_end) for unit heads [head_begin, head_end).
struct backward_unit {
    int32_t tile, tile_end, head_begin, head_end;
};

// Key head of a unit head.
static __device__ __forceinline__ int32_t unit_kv_head(const struct backward_params &p,
                                                       int32_t unit_head)
{
    return p.by_query_head ? (unit_head + p.head_phase) / p.group : unit_head;
}

// Number of thread blocks of a launch.
static inline unsigned units_count(const struct backward_params *p)
{
    if (p->heads_chained)
        return (unsigned)p->chain_count;
    return (unsigned)p->chain_count * (unsigned)(p->unit_heads - p->tail_heads) +
           (unsigned)p->tail_count * (unsigned)p->tail_heads;
}

// Unit head at a place in launch order. With heads_dealt, query heads that share a key head are far
// apart, so that they seldom add to dK and dV at the same time.
static __device__ __forceinline__ int32_t unit_head_at(const struct backward_params &p,
                                                       int32_t place)
{
    return p.heads_dealt ? place % p.kv_heads * p.group + place / p.kv_heads : place;
}

// The unit of thread block `index`. Order: sections of heads; in a section the chains; for a chain
// the section's heads. The tail follows: its tiles, for each the heads of the tail. With
// heads_chained there are only chains.
static __device__ __forceinline__ struct backward_unit unit_of(const struct backward_params &p,
                                                               int32_t index)
{
    struct backward_unit unit;
    int32_t chain = index, heads = p.unit_heads - p.tail_heads;
    unit.head_begin = 0;
    unit.head_end = p.unit_heads;
    if (!p.heads_chained) {
        int32_t rest = index - p.chain_count * heads;
        if (rest >= 0) {
            unit.tile = p.tile_count + rest / p.tail_heads;
            unit.tile_end = unit.tile + 1;
            unit.head_begin = unit_head_at(p, heads + rest % p.tail_heads);
            unit.head_end = unit.head_begin + 1;
            return unit;
        }
        int32_t section = index / (p.chain_count * p.section_heads);
        int32_t first = section * p.section_heads;
        rest = index - first * p.chain_count;
        heads = min(p.section_heads, heads - first);
        chain = rest / heads;
        unit.head_begin = unit_head_at(p, first + rest % heads);
        unit.head_end = unit.head_begin + 1;
    }
    unit.tile = p.chains[chain];
    unit.tile_end = p.chains[chain + 1];
    return unit;
}

// ---- steps --------------------------------------------------------------------------------------

// A block of queries of one head against the tile. Query i of the block sees key j of the tile iff
// low <= j - i <= high and both exist (i < rows, j < rows of the tile).
struct __align__(16) backward_step
{
    int64_t vector; // index of query 0 in [rows][heads]
    int64_t scalar; // index of query 0 in [heads][q_rows]
    int64_t bias;   // offset of query 0 and key 0 in the bias, in elements
    int64_t turn;   // index in `turns`
    int32_t rows;   // queries of the block; 0: no step, after the last one
    int32_t low, high;
    int32_t block;      // index of the block and head in `taken`
    int32_t masked;     // whether any of Q_ROWS x KV_ROWS scores is masked or does not exist
    int32_t left;       // blocks of the fragment that follow this one
    int32_t padding[2]; // to 64 bytes, copied as four vectors
};

// Position of a thread block in its unit, in shared memory. The loops, from the outermost: tiles,
// unit heads, query heads of the key head, fragments of the tile, blocks of the fragment.
struct backward_cursor {
    int64_t kv_vector;                // index of the tile's key 0 in [rows][kv_heads]
    int32_t tile, unit_head, kv_head; // current
    int32_t tile_rows;
    int32_t head, head_end; // query head of the next fragment; end of the query heads
    int32_t fragment, fragment_begin, fragment_end; // next; range of the tile
    struct backward_unit unit;
};

// Starts the unit of this thread block. One thread calls this and the following cursor functions.
static __device__ __forceinline__ void cursor_begin(const struct backward_params &p,
                                                    struct backward_cursor *c)
{
    // Deterministic thread blocks wait for thread blocks before them in the order of units. Tickets
    // make this the order in which they begin, so that all they wait for have begun.
    c->unit = unit_of(p, p.tickets ? (int32_t)atomicAdd(p.tickets, 1u) : (int32_t)blockIdx.x);
    c->tile = c->unit.tile;
    c->unit_head = c->unit.head_begin;
}

// Starts the current tile and unit head.
static __device__ __forceinline__ void cursor_tile(const struct backward_params &p,
                                                   struct backward_cursor *c)
{
    const struct backward_tile *t = &p.tiles[c->tile];
    int32_t unit_head = c->unit_head;
    c->kv_head = unit_kv_head(p, unit_head);
    c->kv_vector = t->kv_row * p.kv_heads + c->kv_head;
    c->head = p.by_query_head ? unit_head : max(0, unit_head * p.group - p.head_phase);
    c->head_end =
        p.by_query_head ? unit_head + 1 : min(p.heads, (unit_head + 1) * p.group - p.head_phase);
    c->fragment = c->fragment_begin = t->fragment;
    c->fragment_end = t->fragment + t->fragment_count;
    c->tile_rows = t->rows;
}

// Advances to the next unit head or tile. The unit is finished when tile == unit.tile_end.
static __device__ __forceinline__ void cursor_advance(struct backward_cursor *c)
{
    if (++c->unit_head < c->unit.head_end)
        return;
    c->unit_head = c->unit.head_begin;
    c->tile++;
}

template <int Q_ROWS, int KV_ROWS>
__device__ __forceinline__ bool step_masked(const struct backward_step &step, int32_t tile_rows)
{
    return step.rows < Q_ROWS || tile_rows < KV_ROWS || step.low > 1 - step.rows ||
           step.high < KV_ROWS - 1;
}

// Sets *step to the last block of the next fragment, which may be that of the next query head.
// step->rows = 0: the tile and unit head have no more.
template <int Q_ROWS, int KV_ROWS>
__device__ __noinline__ void cursor_fragment(const struct backward_params &p,
                                             struct backward_cursor *c, struct backward_step *step)
{
    if (c->fragment == c->fragment_end) {
        c->fragment = c->fragment_begin;
        c->head++;
    }
    step->left = 0;
    step->rows = 0;
    if (c->head >= c->head_end)
        return;
    const struct backward_fragment f = p.fragments[c->fragment++];
    int32_t block = f.block_end - 1, first = block * Q_ROWS;
    int64_t row = f.q_row + first * p.row_step;
    step->vector = row * p.heads + c->head;
    step->scalar = c->head * p.q_rows + row;
    step->bias = c->head * p.bias_head_stride + f.bias + first * p.bias_query_stride;
    step->turn = f.turn + block - f.block_begin;
    step->rows = min(Q_ROWS, f.q_len - first);
    step->low = f.low + first;
    step->high = f.high + first;
    step->block = (f.block_first + block) * p.heads + c->head;
    step->left = block - f.block_begin;
    step->masked = step_masked<Q_ROWS, KV_ROWS>(*step, c->tile_rows);
}

// Sets *next to the step after `last`: blocks of a fragment from the last to the first.
template <int Q_ROWS, int KV_ROWS>
__device__ __forceinline__ void
cursor_next(const struct backward_params &p, struct backward_cursor *c,
            const struct backward_step *last, struct backward_step *next)
{
    struct backward_step step = *last;
    if (step.left == 0) {
        cursor_fragment<Q_ROWS, KV_ROWS>(p, c, next);
        return;
    }
    step.vector -= Q_ROWS * p.row_step * p.heads;
    step.scalar -= Q_ROWS * p.row_step;
    step.bias -= Q_ROWS * p.bias_query_stride;
    step.turn--;
    step.rows = Q_ROWS;
    step.low -= Q_ROWS;
    step.high -= Q_ROWS;
    step.block -= p.heads;
    step.left--;
    step.masked = step_masked<Q_ROWS, KV_ROWS>(step, c->tile_rows);
    *next = step;
}

// ---- memory -------------------------------------------------------------------------------------

// Copies 4 bytes from global to shared memory asynchronously (cp.async), or clears them there.
static __device__ __forceinline__ void copy_word(uint32_t destination, const void *source,
                                                 bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(destination), "l"(source), "r"(valid ? 4 : 0)
                 : "memory");
}

// Adds x to a gradient in global memory by a relaxed reduction.
static __device__ __forceinline__ void add_float(float *where, float x)
{
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" : : "l"(where), "f"(x) : "memory");
}

// Writes x if `writes`, else adds it.
static __device__ __forceinline__ void put_float(bool writes, float *where, float x)
{
    if (writes)
        *where = x;
    else
        add_float(where, x);
}

// Adds two floats; `where` is 8-byte aligned.
static __device__ __forceinline__ void add_pair(float *where, float x, float y)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};"
                 :
                 : "l"(where), "f"(x), "f"(y)
                 : "memory");
#else
    add_float(where, x);
    add_float(where + 1, y);
#endif
}

// Adds four floats; `where` is 16-byte aligned.
static __device__ __forceinline__ void add_four(float *where, float4 x)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(where), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#else
    add_pair(where, x.x, x.y);
    add_pair(where + 2, x.z, x.w);
#endif
}

// Turns. A warp adds its part of a gradient when the counter `taken` has reached its turn. It adds
// by reductions only and reads nothing that others wrote, so a relaxed load of the counter
// suffices, without acquire.
static __device__ __forceinline__ unsigned turn_look(const unsigned *taken)
{
    unsigned now;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(taken) : "memory");
    return now;
}

// Called by a whole warp: waits until *taken == turn. `now`: an earlier turn_look(), or any other
// value than `turn`.
static __device__ __forceinline__ void turn_wait(const unsigned *taken, unsigned turn, unsigned now)
{
    if (threadIdx.x % WARP_LANES == 0)
        while (now != turn)
            now = turn_look(taken);
    __syncwarp();
}

// Called by a whole warp: releases its additions and passes the turn on.
static __device__ __forceinline__ void turn_end(unsigned *taken, unsigned turn)
{
    __syncwarp();
    if (threadIdx.x % WARP_LANES == 0)
        asm volatile("st.release.gpu.global.u32 [%0], %1;"
                     :
                     : "l"(taken), "r"(turn + 1)
                     : "memory");
}

// Turn of a warp at dK and dV. Deterministic: the query heads that share a key head add in
// ascending order. The constructor waits, end() passes the turn on. Without turns both do nothing.
struct turn_keys {
    unsigned *taken;
    unsigned turn;

    __device__ __forceinline__ turn_keys(const struct backward_params &p,
                                         const struct backward_cursor *c)
        : taken(NULL), turn(0)
    {
        if (!p.tickets || !p.by_query_head || p.group == 1)
            return;
        taken = p.taken_keys + ((int64_t)c->tile * p.kv_heads + c->kv_head) * BACKWARD_WARPS +
                threadIdx.x / WARP_LANES;
        turn = (unsigned)(c->unit_head - max(0, c->kv_head * p.group - p.head_phase));
        turn_wait(taken, turn, turn + 1);
    }

    __device__ __forceinline__ void end() const
    {
        if (taken)
            turn_end(taken, turn);
    }
};

// ---- host ---------------------------------------------------------------------------------------

// One instance of a kernel, with its tile sizes and limits.
struct backward_kernel {
    void (*run)(struct backward_params);
    int32_t q_rows, kv_rows; // queries of a block, keys of a tile
    int32_t d_qk, d_v;       // largest head dimensions
    int32_t shared_bytes;    // dynamic shared memory
};

// Returns the first instance for the head dimensions that needs at most shared_bytes_max of shared
// memory; NULL if there is none. general: with bias or softcap.
typedef const struct backward_kernel *backward_kernel_choose(int d_qk, int d_v,
                                                             int shared_bytes_max);
backward_kernel_choose backward_kernel_bf16, backward_kernel_fp16;
backward_kernel_choose backward_kernel_general_bf16, backward_kernel_general_fp16;
// Any dtype in fp32 arithmetic, without tensor cores: for fp32, and where no other instance fits.
const struct backward_kernel *backward_kernel_plain(enum case_dtype dtype, int d_qk, int d_v);

static inline const struct backward_kernel *backward_kernel_find(const struct backward_kernel *all,
                                                                 int count, int d_qk, int d_v,
                                                                 int shared_bytes_max)
{
    for (int i = 0; i < count; i++)
        if (d_qk <= all[i].d_qk && d_v <= all[i].d_v && all[i].shared_bytes <= shared_bytes_max)
            return &all[i];
    return NULL;
}

#endif
