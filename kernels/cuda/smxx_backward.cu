// SPDX-License-Identifier: Apache-2.0
// Host side of backward: chooses the kernel, cuts the work into tiles, enqueues the launch.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/internal.h"
#include "kernels/cuda/sm90_backward.h"
#include "kernels/cuda/worklist_tail.h"

extern "C" {
#include "kernels/cuda/sm90_tensor.h"
}

// Bytes of L2 for the queries' side (Q, dO, dQ) of the heads that are processed at the same time:
// half of the smallest L2 of the chips that matter.
#define SECTION_BYTES   (INT64_C(20) << 20)
// Thread blocks per multiprocessor that suffice for an even load.
#define UNITS_LEAST     4
// Thread blocks that take all query heads of a key head miss L2 more often. They lose the fraction
// B / KEY_HEADS_PARTS of their time. B: bytes of a query in Q, dO and dQ of these heads, divided by
// the keys of a tile. Measured: 1 to 4 % with B = 32, 7 % with B = 64.
#define KEY_HEADS_PARTS 700
// If all tiles have equally many steps, they lose less than 1 / EVEN_PARTS instead.
#define EVEN_PARTS      50

// Tiles of one head that take turns start staggered. If all tiles see the same queries and have at
// most TURNS_STEPS steps, the stagger is a large part of their time, unless at most about
// TURNS_TILES tiles of each head run at the same time.
#define TURNS_STEPS 128
#define TURNS_TILES 22

// The chosen kernel: sm90 or portable, the other is NULL. It needs blocks of q_rows queries and
// tiles of kv_rows keys.
struct chosen {
    const struct sm90_backward_kernel *sm90;
    const struct backward_kernel *portable;
    int32_t q_rows, kv_rows;
};

static const struct backward_kernel *portable_choose(const struct attention_backend *backend,
                                                     const struct attention_backward *args)
{
    const struct attention_shape *shape = &args->shape;
    bool general = args->bias || shape->softcap != 0;
    backward_kernel_choose *choose = NULL;
    if (shape->dtype == DTYPE_BF16)
        choose = general ? backward_kernel_general_bf16 : backward_kernel_bf16;
    if (shape->dtype == DTYPE_FP16)
        choose = general ? backward_kernel_general_fp16 : backward_kernel_fp16;
    const struct backward_kernel *kernel =
        choose ? choose(shape->d_qk, shape->d_v, backend->queue.shared_bytes_max) : NULL;
    return kernel ? kernel : backward_kernel_plain(shape->dtype, shape->d_qk, shape->d_v);
}

static struct chosen kernel_choose(const struct attention_backend *backend,
                                   const struct attention_backward *args)
{
#ifdef CPATTN_SM90
    const struct sm90_backward_kernel *sm90 = sm90_backward_choose(backend, args);
    if (sm90)
        return {sm90, NULL, sm90->q_rows, sm90->kv_rows};
#endif
    const struct backward_kernel *portable = portable_choose(backend, args);
    return {NULL, portable, portable->q_rows, portable->kv_rows};
}

static bool aligned(const void *pointer, uintptr_t bytes)
{
    return (uintptr_t)pointer % bytes == 0;
}

static void params_scores(const struct attention_shape *shape, struct backward_params *p)
{
    double cap = shape->softcap;
    p->scale = (float)shape->scale;
    p->product_factor = (float)(shape->scale * (cap != 0 ? 1 / cap : M_LOG2E));
    p->cap_factor = (float)(cap * M_LOG2E);
    if (cap != 0)
        cap_series_set(p->product_factor, p->cap_factor, &p->cap_series);
    p->bias_head_stride = shape->bias_head_stride;
    p->bias_query_stride = shape->bias_row_step * shape->bias_row_stride;
    p->dbias_once = shape->dbias_once;
}

static void params_shape(const struct attention_shape *shape, struct backward_params *p)
{
    p->heads = shape->heads;
    p->kv_heads = shape->kv_heads;
    p->group = shape->group;
    p->head_phase = shape->head_phase;
    p->d_qk = shape->d_qk;
    p->d_v = shape->d_v;
    p->row_step = shape->row_step;
    p->q_rows = shape->q_rows;
}

static void params_tensors(const struct attention_backward *args, struct backward_params *p)
{
    const struct attention_shape *shape = &args->shape;
    p->q = args->q;
    p->k = args->k;
    p->v = args->v;
    p->d_out = args->d_out;
    p->bias = args->bias;
    p->lse = args->lse;
    p->d = args->d;
    p->dq = args->dq;
    p->dk = args->dk;
    p->dv = args->dv;
    p->dbias = args->bias ? args->dbias : NULL;
    p->queries_begin = args->queries_begin;
    p->keys_begin = args->keys_begin;
    p->dk_out = args->dk_out;
    p->dv_out = args->dv_out;
    p->vectors = shape->d_qk % 8 == 0 && shape->d_v % 8 == 0 && aligned(args->q, 16) &&
                 aligned(args->k, 16) && aligned(args->v, 16) && aligned(args->d_out, 16);
    p->pairs = shape->d_qk % 2 == 0 && shape->d_v % 2 == 0 && aligned(args->dq, 8) &&
               aligned(args->dk, 8) && aligned(args->dv, 8);
}

// True if all tiles have equally many steps.
static bool tiles_are_even(const struct backward_worklist *list)
{
    for (int32_t i = 1; i < list->tile_count; i++)
        if (list->tiles[i].steps != list->tiles[0].steps)
            return false;
    return true;
}

// True if the summands of an element of dbias must be added in a fixed order.
static bool dbias_is_ordered(const struct attention_op *op)
{
    return op->shape.deterministic && !op->shape.dbias_once && op->bias && op->dbias;
}

// Bytes of one query of one head in Q, dO and dQ.
static int64_t query_bytes(const struct backward_params *p)
{
    return 2 * p->d_v + 6 * p->d_qk;
}

// Sets the unit heads and their sections. A unit head is a query head, or a key head with all query
// heads that share it.
static void units_set(const struct attention_backend *backend, const struct backward_worklist *list,
                      int32_t q_rows, bool by_query_head, struct backward_params *p)
{
    p->by_query_head = by_query_head;
    p->unit_heads = by_query_head ? p->heads : p->kv_heads;
    // Heads of a section: as many as keep their queries in L2.
    int64_t bytes = (int64_t)list->block_count * q_rows * query_bytes(p);
    bytes *= by_query_head ? 1 : p->group;
    int64_t heads = SECTION_BYTES / (bytes > 0 ? bytes : 1);
    int32_t together = backend->queue.sm_count / TURNS_TILES;
    if (p->reversed && heads < together && list->tiles[0].steps <= TURNS_STEPS &&
        tiles_are_even(list))
        heads = together;
    p->section_heads = (int32_t)(heads < 1 ? 1 : heads > p->unit_heads ? p->unit_heads : heads);
}

static struct backward_load units_load(const struct attention_backend *backend,
                                       const struct backward_params *p)
{
    return {backend->queue.sm_count, p->unit_heads, p->section_heads,
            p->by_query_head ? 1 : p->group, p->reversed};
}

// True if the thread blocks of Hopper's kernels without a bias take one query head each. With all
// query heads of a key head, a thread block adds to dK and dV once for all of them, but the queries
// of more heads pass through L2 at a time. Even tiles run at one pace and share what is in L2.
// Uneven tiles that take turns at dQ would wait for each other.
static bool units_are_heads(const struct attention_backend *backend,
                            const struct backward_worklist *list, const struct chosen *kernel,
                            struct backward_params p)
{
    const bool even = tiles_are_even(list);
    if (p.reversed && !even)
        return true;
    units_set(backend, list, kernel->q_rows, true, &p);
    const struct backward_load query_heads = units_load(backend, &p);
    units_set(backend, list, kernel->q_rows, false, &p);
    const struct backward_load key_heads = units_load(backend, &p);
    const int64_t before = backward_worklist_time(list, &query_heads);
    const int64_t saved = before - backward_worklist_time(list, &key_heads);
    if (even)
        return saved * EVEN_PARTS < before;
    return saved * KEY_HEADS_PARTS * kernel->kv_rows < before * query_bytes(&p) * p.group;
}

// Sets the unit heads. units_are_heads() decides for Hopper's kernels without a bias if query heads
// share key heads. Otherwise a thread block takes all query heads of a key head, unless that gives
// too few thread blocks, or, in a deterministic backward, long ones that wait for each other.
static void params_units(const struct attention_backend *backend,
                         const struct backward_worklist *list, const struct attention_op *op,
                         const struct chosen *kernel, struct backward_params *p)
{
    const int64_t units = (int64_t)list->chain_count * p->kv_heads;
    bool by_query_head =
        op->shape.deterministic || units < UNITS_LEAST * (int64_t)backend->queue.sm_count;
    p->chain_count = list->chain_count;
    if (kernel->sm90 && p->group > 1 && !op->bias)
        by_query_head = units_are_heads(backend, list, kernel, *p);
    units_set(backend, list, kernel->q_rows, by_query_head, p);
    p->heads_chained = dbias_is_ordered(op) && p->bias_head_stride == 0;
    p->heads_dealt = p->by_query_head && p->head_phase == 0 && p->heads == p->kv_heads * p->group;
}

// Sizes of a list's arrays, which lie one after the other in the table.
struct list_bytes {
    size_t tiles, fragments, chains;
};

static struct list_bytes list_bytes_of(const struct backward_worklist *list)
{
    return {(size_t)(list->tile_count + list->tail_count) * sizeof(*list->tiles),
            (size_t)list->fragment_count * sizeof(*list->fragments),
            (size_t)(list->chain_count + 1) * sizeof(*list->chains)};
}

// ---- order --------------------------------------------------------------------------------------

#define TURN_THREADS 128

// Calls visit(index) for the steps of a tile that use a block of queries, in processing order. The
// index is that of the step in `turns`.
template <class F>
static __device__ void tile_steps(const struct backward_tile *tile,
                                  const struct backward_fragment *fragments, int32_t block,
                                  bool reversed, F visit)
{
    for (int32_t i = 0; i < tile->fragment_count; i++) {
        const struct backward_fragment *f =
            &fragments[tile->fragment + (reversed ? tile->fragment_count - 1 - i : i)];
        int32_t local = block - f->block_first;
        if (local >= f->block_begin && local < f->block_end)
            visit(f->turn + local - f->block_begin);
    }
}

// Clears the counters with the whole grid. count_turns() does not use them.
static __device__ void counters_clear(unsigned *counters, uint64_t count)
{
    uint64_t block = (uint64_t)blockIdx.y * gridDim.x + blockIdx.x;
    uint64_t step = (uint64_t)gridDim.x * gridDim.y * blockDim.x;
    for (uint64_t i = block * blockDim.x + threadIdx.x; i < count; i += step)
        counters[i] = 0;
}

// Sets the turns of all steps. A warp handles one block of queries and goes over all tiles in
// processing order. Row 0 of the grid does the whole tiles, row 1 the tail, whose tiles are stored
// in processing order.
static __global__ void count_turns(const struct backward_tile *tiles, int32_t tile_count,
                                   int32_t tail_count, const struct backward_fragment *fragments,
                                   int32_t block_count, bool reversed, int32_t *turns,
                                   unsigned *counters, uint64_t counter_count)
{
    counters_clear(counters, counter_count);
    bool backwards = reversed && blockIdx.y == 0;
    if (blockIdx.y > 0) {
        tiles += tile_count;
        tile_count = tail_count;
    }
    int32_t block = (int32_t)((blockIdx.x * blockDim.x + threadIdx.x) / 32), turn = 0;
    int32_t lane = (int32_t)threadIdx.x % 32;
    if (block >= block_count)
        return;
    for (int32_t first = 0; first < tile_count; first += 32) {
        int32_t t = first + lane, steps = 0;
        const struct backward_tile *tile = &tiles[backwards ? tile_count - 1 - t : t];
        if (t < tile_count)
            tile_steps(tile, fragments, block, reversed, [&](int64_t) { steps++; });
        int32_t sum = steps; // inclusive prefix sum over the lanes
        for (int32_t lanes = 1; lanes < 32; lanes *= 2) {
            int32_t before = __shfl_up_sync(0xffffffffu, sum, lanes);
            sum += lane >= lanes ? before : 0;
        }
        int32_t next = turn + sum - steps;
        if (t < tile_count)
            tile_steps(tile, fragments, block, reversed, [&](int64_t at) { turns[at] = next++; });
        turn += __shfl_sync(0xffffffffu, sum, 31);
    }
}

// Number of elements of `taken`, `taken_keys` and `turns` of struct backward_params.
struct order {
    size_t taken, keys, turns;
};

// Only a deterministic backward takes turns at dQ.
static struct order order_of(const struct backward_worklist *list,
                             const struct attention_shape *shape)
{
    struct order order = {0, (size_t)list->tile_count * shape->kv_heads * BACKWARD_WARPS, 0};
    if (shape->deterministic) {
        order.taken = (size_t)list->block_count * shape->heads * BACKWARD_WARPS;
        order.turns = (size_t)list->steps;
    }
    return order;
}

// All counters: those of struct order and the ticket.
static size_t counters_count(const struct order &order)
{
    return order.taken + order.keys + 1;
}

static size_t counters_bytes(const struct order &order)
{
    return counters_count(order) * sizeof(unsigned);
}

// A prepared backward. Everything but `list` is kept until it is discarded.
struct backward_prepared {
    struct attention_work base;
    struct chosen kernel;
    bool ordered, aligned; // deterministic; launches must pass 16-byte aligned tensors
    bool keys_shared;      // several thread blocks add to dK and dV of the same keys
    struct sm90_backward_extent extent;
    struct order order;
    int32_t block_count;
    struct backward_params params; // of a launch, except tensors, counters and turns
    struct backward_worklist list; // empty after backward_place_cuda()
};

// Clears the counters of a backward with turns at dK and dV only.
static void order_keys_begin(struct attention_backend *backend, const struct backward_prepared *x,
                             char *scratch, struct backward_params *p)
{
    p->taken_keys = (unsigned *)scratch;
    cuda_note(backend, cudaMemsetAsync(scratch, 0, counters_bytes(x->order), backend->queue.stream),
              "clearing counters");
}

// Enqueues count_turns(), which sets the turns of a deterministic backward and clears its counters.
// Layout of scratch: taken, taken_keys, tickets, turns.
static void order_begin(struct attention_backend *backend, const struct backward_prepared *x,
                        char *scratch, struct backward_params *p)
{
    const struct order *order = &x->order;
    unsigned *counters = (unsigned *)scratch;
    p->taken = counters;
    p->taken_keys = counters + order->taken;
    p->tickets = counters + order->taken + order->keys;
    int32_t *turns = (int32_t *)(scratch + scratch_bytes(counters_bytes(*order)));
    p->turns = turns;
    int32_t warps = TURN_THREADS / 32;
    dim3 grid((unsigned)((x->block_count + warps - 1) / warps), p->tail_count > 0 ? 2 : 1);
    count_turns<<<grid, TURN_THREADS, 0, backend->queue.stream>>>(
        p->tiles, p->tile_count, p->tail_count, p->fragments, x->block_count, p->reversed, turns,
        counters, counters_count(*order));
    cuda_launched(backend, "counting turns");
}

// ---- preparing ----------------------------------------------------------------------------------

static enum status check_shape(const struct attention_shape *shape, struct error *error)
{
    int d_max = shape->d_qk > shape->d_v ? shape->d_qk : shape->d_v;
    if (shape->d_qk < 1 || shape->d_v < 1 || d_max > HEAD_DIM_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "head dimensions are %d and %d; accepted is 1 to %d", shape->d_qk,
                         shape->d_v, HEAD_DIM_MAX);
    return STATUS_OK;
}

// Checks that the grid and the indices of blocks of queries fit into 31 bits.
static enum status check_list(const struct attention_shape *shape,
                              const struct backward_worklist *list, struct error *error)
{
    if ((int64_t)(list->chain_count + list->tail_count) * shape->heads > INT32_MAX ||
        (int64_t)list->block_count * shape->heads > INT32_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "backward has %d tiles of keys and %d blocks of queries for %d heads; "
                         "accepted are 2^31 in all",
                         list->tile_count, list->block_count, shape->heads);
    return STATUS_OK;
}

// Stand-in arguments: equal to those of the launches in all that the choice of a kernel depends on.
static struct attention_backward args_like(const struct attention_op *op)
{
    alignas(16) static float place[2];
    float *tensor = op->aligned ? place : place + 1;
    struct attention_backward args = {};
    args.shape = op->shape;
    args.q = args.k = args.v = args.d_out = tensor;
    args.lse = args.d = args.o = tensor;
    args.dq = args.dk = args.dv = tensor;
    args.bias = op->bias ? tensor : NULL;
    args.dbias = op->dbias ? tensor : NULL;
    args.slices = op->slices;
    args.slice_count = op->slice_count;
    return args;
}

// Adds a tail for Hopper's kernels, which run one thread block per multiprocessor, so that all
// thread blocks end together.
static enum status tail_add(const struct attention_backend *backend, struct backward_prepared *x,
                            struct error *error)
{
    struct backward_params *p = &x->params;
    const struct backward_load load = units_load(backend, p);
    enum status status = STATUS_OK;
    if (x->kernel.sm90)
        status = backward_worklist_tail(&x->list, &load, error);
    p->tail_count = x->list.tail_count;
    p->tail_heads = x->list.tail_heads;
    return status;
}

static enum status params_set(struct attention_backend *backend, const struct attention_op *op,
                              struct backward_prepared *x, struct error *error)
{
    struct backward_params *p = &x->params;
    const struct attention_shape *shape = &op->shape;
    params_shape(shape, p);
    params_scores(shape, p);
    p->reversed = x->kernel.sm90 && shape->deterministic;
    p->tile_count = x->list.tile_count;
    x->block_count = x->list.block_count;
    params_units(backend, &x->list, op, &x->kernel, p);
    enum status status = tail_add(backend, x, error);
    if (status != STATUS_OK)
        return status;
    x->keys_shared = x->kernel.sm90 && (p->tail_count > 0 || (p->by_query_head && p->group > 1));
    x->order = order_of(&x->list, shape);
    x->extent = {sm90_extent_of(op->slices, op->slice_count, shape->row_step, true).positions,
                 sm90_extent_of(op->slices, op->slice_count, shape->row_step, false).positions};
    return check_list(shape, &x->list, error);
}

static cudaError_t kernel_ready(const struct chosen *kernel)
{
#ifdef CPATTN_SM90
    if (kernel->sm90)
        return sm90_backward_ready(kernel->sm90);
#endif
    return cudaFuncSetAttribute((const void *)kernel->portable->run,
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kernel->portable->shared_bytes);
}

static enum status work_make(struct attention_backend *backend, const struct attention_op *op,
                             struct backward_prepared *x, struct error *error)
{
    const struct attention_shape *shape = &op->shape;
    const struct attention_backward args = args_like(op);
    enum status status = check_shape(shape, error);
    if (status != STATUS_OK)
        return status;
    x->kernel = kernel_choose(backend, &args);
    struct backward_cut cut = {x->kernel.q_rows, x->kernel.kv_rows, dbias_is_ordered(op)};
    status = backward_worklist_build(&x->list, shape, op->slices, op->slice_count, cut, error);
    if (status == STATUS_OK && x->list.tile_count > 0)
        status = params_set(backend, op, x, error);
    if (status != STATUS_OK || x->list.tile_count == 0)
        return status;
    cuda_note(backend, kernel_ready(&x->kernel), "the shared memory of backward");
    return cuda_report(backend, error);
}

enum status backward_prepare_cuda(struct attention_backend *backend, const struct attention_op *op,
                                  struct attention_work **work, struct op_needs *needs,
                                  struct error *error)
{
    struct backward_prepared *x = (struct backward_prepared *)calloc(1, sizeof(*x));
    if (!x)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for an operation");
    x->base.backward = true;
    x->ordered = op->shape.deterministic;
    x->aligned = op->aligned;
    enum status status = work_make(backend, op, x, error);
    if (status != STATUS_OK) {
        backward_discard_cuda(&x->base);
        return status;
    }
    needs->folds = x->kernel.sm90 != NULL;
    needs->begins_queries = x->kernel.sm90 && x->kernel.sm90->begins_queries;
    if (x->list.tile_count > 0) {
        struct list_bytes bytes = list_bytes_of(&x->list);
        needs->table_bytes = bytes.tiles + bytes.fragments + bytes.chains;
        if (x->ordered || x->keys_shared)
            needs->scratch_bytes = scratch_bytes(counters_bytes(x->order)) +
                                   scratch_bytes(x->order.turns * sizeof(int32_t));
    }
    *work = &x->base;
    return STATUS_OK;
}

void backward_place_cuda(struct attention_work *work, void *host, const void *device)
{
    struct backward_prepared *x = (struct backward_prepared *)work;
    struct list_bytes bytes = list_bytes_of(&x->list);
    char *at = (char *)host;
    const char *there = (const char *)device;
    memcpy(at, x->list.tiles, bytes.tiles);
    memcpy(at + bytes.tiles, x->list.fragments, bytes.fragments);
    memcpy(at + bytes.tiles + bytes.fragments, x->list.chains, bytes.chains);
    x->params.tiles = (const struct backward_tile *)there;
    x->params.fragments = (const struct backward_fragment *)(there + bytes.tiles);
    x->params.chains = (const int32_t *)(there + bytes.tiles + bytes.fragments);
    backward_worklist_fini(&x->list);
}

void backward_discard_cuda(struct attention_work *work)
{
    struct backward_prepared *x = (struct backward_prepared *)work;
    backward_worklist_fini(&x->list);
    free(x);
}

// ---- launch -------------------------------------------------------------------------------------

static void launch_portable(struct attention_backend *backend, const struct backward_kernel *kernel,
                            const struct backward_params *p)
{
    kernel->run<<<units_count(p), BACKWARD_THREADS, (size_t)kernel->shared_bytes,
                  backend->queue.stream>>>(*p);
    cuda_launched(backend, "backward");
}

static bool is_aligned(const struct attention_backward *args)
{
    return aligned(args->q, 16) && aligned(args->k, 16) && aligned(args->v, 16) &&
           aligned(args->d_out, 16) && aligned(args->dq, 16) && aligned(args->dk, 16) &&
           aligned(args->dv, 16) && aligned(args->dk_out, 16) && aligned(args->dv_out, 16);
}

static void launch(struct attention_backend *backend, const struct attention_backward *args,
                   const struct backward_prepared *x, char *scratch)
{
    struct backward_params p = x->params;
    params_tensors(args, &p);
    if (x->ordered)
        order_begin(backend, x, scratch, &p);
    else if (x->keys_shared && (p.keys_begin || p.dk_out))
        order_keys_begin(backend, x, scratch, &p);
#ifdef CPATTN_SM90
    if (x->kernel.sm90) {
        sm90_backward_launch(backend, args, x->kernel.sm90, &x->extent, &p);
        return;
    }
#endif
    launch_portable(backend, x->kernel.portable, &p);
}

enum status backward_launch_cuda(struct attention_backend *backend,
                                 const struct attention_work *work,
                                 const struct attention_backward *args, void *scratch,
                                 struct error *error)
{
    const struct backward_prepared *x = (const struct backward_prepared *)work;
    if (x->params.tile_count == 0)
        return cuda_report(backend, error);
    if (x->aligned && !is_aligned(args))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensors of a backward are not aligned as they were said to be");
    launch(backend, args, x, (char *)scratch);
    return cuda_report(backend, error);
}
