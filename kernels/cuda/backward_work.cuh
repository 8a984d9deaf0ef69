// SPDX-License-Identifier: Apache-2.0
// What the backward kernels share: their parameters and the walk of a thread block through its
// work.
#ifndef CPATTN_KERNELS_CUDA_BACKWARD_WORK_CUH
#define CPATTN_KERNELS_CUDA_BACKWARD_WORK_CUH

#include "kernels/cuda/cap_series.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/worklist_backward.h"

static const float LOG2_E = 1.4426950408889634f;

#define BACKWARD_THREADS 256
#define BACKWARD_WARPS   (BACKWARD_THREADS / WARP_LANES)

// All memory is the device's.
struct backward_params {
    const void *q, *k, *v, *d_out, *bias;
    const float *lse, *d;
    float *dq, *dk, *dv, *dbias;
    void *dk_out, *dv_out; // as in struct attention_backward; only kernels for sm_90a
    const struct backward_tile *tiles;
    const struct backward_fragment *fragments;
    const int32_t *chains;
    // Where thread blocks share keys and take turns: how many turns at dK and dV were taken, for
    // each tile, key head and warp. NULL otherwise.
    unsigned *taken_keys;
    // Deterministic: how many thread blocks have begun; of each step its turn; how many turns at dQ
    // were taken, for each block of queries, head and warp. NULL otherwise.
    unsigned *tickets;
    const int32_t *turns;
    unsigned *taken;
    int32_t heads, kv_heads, group, head_phase, d_qk, d_v;
    int32_t chain_count, tile_count;
    bool reversed;         // tiles, fragments and blocks are worked on from the last to the first
    bool by_query_head;    // a thread block takes one head, else all that share a key head
    int32_t unit_heads;    // heads, or kv_heads
    int32_t section_heads; // of the former, those whose tiles are worked on at the same time
    // The last tail_heads of the unit heads have tail_count tiles behind the others, see
    // struct backward_worklist.
    int32_t tail_count, tail_heads;
    bool heads_chained; // a thread block takes a chain with all heads
    bool heads_dealt;   // see unit_head_at()
    bool vectors;       // rows are multiples of 16 bytes and begin at such
    bool pairs;         // rows of gradients are multiples of 8 bytes and begin at such
    int64_t row_step, q_rows;
    int64_t bias_head_stride, bias_query_stride;
    bool dbias_once; // as in struct attention_shape
    // As in struct attention_backward: the first turn writes. Only kernels for sm_90a, and
    // queries_begin only deterministic ones.
    bool queries_begin, keys_begin;
    float scale;
    float product_factor; // of a product of query and key: makes it base 2, or the argument of tanh
    float cap_factor;     // of the tanh: makes it base 2; 0: there is none
    struct cap_series cap_series; // of these two factors; of the kernels for sm_90a alone
};

// The thread's number, read anew: addresses that are made of it are not worth a register each for
// the whole of a kernel that is short of them.
static __device__ __forceinline__ int thread_number(void)
{
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

// ---- thread blocks ------------------------------------------------------------------------------

// A thread block's tiles and unit heads: query heads or key heads.
struct backward_unit {
    int32_t tile, tile_end, head_begin, head_end;
};

static __device__ __forceinline__ int32_t unit_kv_head(const struct backward_params &p,
                                                       int32_t unit_head)
{
    return p.by_query_head ? (unit_head + p.head_phase) / p.group : unit_head;
}

// How many there are.
static inline unsigned units_count(const struct backward_params *p)
{
    if (p->heads_chained)
        return (unsigned)p->chain_count;
    return (unsigned)p->chain_count * (unsigned)(p->unit_heads - p->tail_heads) +
           (unsigned)p->tail_count * (unsigned)p->tail_heads;
}

// The unit head at a place of the order in which thread blocks take them. If heads_dealt, query
// heads that share a key head are far apart, so that they seldom add to dK and dV at the same time.
static __device__ __forceinline__ int32_t unit_head_at(const struct backward_params &p,
                                                       int32_t place)
{
    return p.heads_dealt ? place % p.kv_heads * p.group + place / p.kv_heads : place;
}

// Thread block `index`: sections of heads one after the other, in each the chains in their order,
// for each chain the heads; then the tail, for each of its tiles the heads.
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

// A block of queries of one head against the tile. Query i sees key j iff low <= j - i <= high, if
// both are there.
struct __align__(16) backward_step
{
    int64_t vector; // of query 0: its place in [rows][heads]
    int64_t scalar; // of query 0: its place in [heads][q_rows]
    int64_t bias;   // element of query 0 and key 0
    int64_t turn;   // index of the turn
    int32_t rows;   // 0: behind the last step
    int32_t low, high;
    int32_t block;      // number of the block and head in `taken`
    int32_t masked;     // whether any query sees less than all keys, or any row is not there
    int32_t left;       // blocks of the fragment after this one
    int32_t padding[2]; // makes it four vectors to copy
};

// Where a thread block is, in shared memory: its tiles, all heads of each, all heads that share a
// key head, the fragments of the tile.
struct backward_cursor {
    int64_t kv_vector;                // of the tile's key 0: its place in [rows][kv_heads]
    int32_t tile, unit_head, kv_head; // now
    int32_t tile_rows;
    int32_t head, head_end;                         // of the next fragment
    int32_t fragment, fragment_begin, fragment_end; // the next
    struct backward_unit unit;
};

// One thread begins with a unit,
static __device__ __forceinline__ void cursor_begin(const struct backward_params &p,
                                                    struct backward_cursor *c)
{
    // Those who wait for each other take tickets, so that they began in that order.
    c->unit = unit_of(p, p.tickets ? (int32_t)atomicAdd(p.tickets, 1u) : (int32_t)blockIdx.x);
    c->tile = c->unit.tile;
    c->unit_head = c->unit.head_begin;
}

// with each of its tiles and heads,
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

// and goes on to the next; tile_end: there is none.
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

// The last block of the next fragment.
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

// The step after `last`: blocks from the last to the first, of each fragment, of each head.
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

static __device__ __forceinline__ void copy_word(uint32_t destination, const void *source,
                                                 bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(destination), "l"(source), "r"(valid ? 4 : 0)
                 : "memory");
}

static __device__ __forceinline__ void add_float(float *where, float x)
{
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" : : "l"(where), "f"(x) : "memory");
}

// The same, or writes x there.
static __device__ __forceinline__ void put_float(bool writes, float *where, float x)
{
    if (writes)
        *where = x;
    else
        add_float(where, x);
}

// To an address that is a multiple of 8.
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

// Four, to an address that is a multiple of 16.
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

// Turns. A warp adds its part of a gradient when its turn has come, by reductions alone: it reads
// nothing that others wrote, so looking at the counter need not acquire anything.
static __device__ __forceinline__ unsigned turn_look(const unsigned *taken)
{
    unsigned now;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(taken) : "memory");
    return now;
}

// Waits, as a warp, until `taken` is `turn`. `now`: what was seen before.
static __device__ __forceinline__ void turn_wait(const unsigned *taken, unsigned turn, unsigned now)
{
    if (threadIdx.x % WARP_LANES == 0)
        while (now != turn)
            now = turn_look(taken);
    __syncwarp();
}

static __device__ __forceinline__ void turn_end(unsigned *taken, unsigned turn)
{
    __syncwarp();
    if (threadIdx.x % WARP_LANES == 0)
        asm volatile("st.release.gpu.global.u32 [%0], %1;"
                     :
                     : "l"(taken), "r"(turn + 1)
                     : "memory");
}

// The same for dK and dV, to which the heads that share a key head are added in their order.
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

// One instantiation of a kernel: how it wants the work to be cut, and what it needs.
struct backward_kernel {
    void (*run)(struct backward_params);
    int32_t q_rows, kv_rows;
    int32_t d_qk, d_v; // largest
    int32_t shared_bytes;
};

// The first that serves the head dimensions with that much shared memory; NULL if none does.
// general: with bias or softcap.
typedef const struct backward_kernel *backward_kernel_choose(int d_qk, int d_v,
                                                             int shared_bytes_max);
backward_kernel_choose backward_kernel_bf16, backward_kernel_fp16;
backward_kernel_choose backward_kernel_general_bf16, backward_kernel_general_fp16;
// One product at a time, in fp32 throughout: for fp32, and where nothing else fits.
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
