// SPDX-License-Identifier: Apache-2.0
// Forward on the host: the work list, the choice of an instance, the launch.
#include "kernels/cuda/forward_work.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/internal.h"
#include "kernels/cuda/sm90_forward.h"
#include "kernels/cuda/sm90_tensor.h"

extern "C" {
#include "kernels/dtype.h"
}

#define TAIL_TILES  4 // tiles per multiprocessor in the last section of heads, at least
#define BIAS_UNIT   8 // 16-bit elements of a 16-byte copy
// With more thread blocks per multiprocessor, the load is even enough without small tiles.
#define ROUNDS_MOST 12
// Small tiles at the end are used if they save more than 1 / GAIN_PARTS of the estimated time.
#define GAIN_PARTS  100

static const double LOG2_E = 1.4426950408889634;

static enum status check_shape(const struct attention_shape *shape, struct error *error)
{
    if (shape->d_qk < 1 || shape->d_v < 1 || shape->d_qk > HEAD_DIM_MAX ||
        shape->d_v > HEAD_DIM_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "head dimensions are %d and %d; accepted is 1 to %d", shape->d_qk,
                         shape->d_v, HEAD_DIM_MAX);
    if (shape->heads < 1 || shape->group < 1 || shape->head_phase < 0 ||
        shape->head_phase >= shape->group || shape->row_step < 1 ||
        (shape->heads + shape->head_phase - 1) / shape->group + 1 != shape->kv_heads)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%d query heads from head %d of a group of %d do not use %d key heads",
                         shape->heads, shape->head_phase, shape->group, shape->kv_heads);
    return STATUS_OK;
}

// Bytes of K and V of one head, in whole blocks, that the tile with the most blocks reads.
static int64_t head_bytes(const struct forward_instance *instance,
                          const struct attention_shape *shape, const struct worklist *list)
{
    int64_t keys = 0;
    for (int32_t i = 0; i < list->tile_count; i++)
        keys = list->tiles[i].blocks > keys ? list->tiles[i].blocks : keys;
    keys *= instance->cut.keys;
    return keys * (shape->d_qk + shape->d_v) * dtype_bytes(shape->dtype);
}

// Target for the bytes of K and V that a section of heads reads.
static int64_t section_bytes(const struct forward_instance *instance,
                             const struct attention_shape *shape, const struct worklist *list)
{
    int64_t two = 2 * head_bytes(instance, shape, list);
    int64_t bytes = two > instance->section_least ? two : instance->section_least;
    return bytes < instance->section_bytes ? bytes : instance->section_bytes;
}

// Query heads of a section: a multiple of `group`, or all heads. With a head_phase the sections do
// not begin at the first head of a group.
static int32_t section_heads(const struct forward_instance *instance,
                             const struct attention_shape *shape, const struct worklist *list)
{
    int64_t bytes = section_bytes(instance, shape, list);
    int64_t heads = bytes / head_bytes(instance, shape, list) * shape->group;
    if (heads < shape->group)
        heads = shape->group;
    return (int32_t)(heads < shape->heads ? heads : shape->heads);
}

// Number of sections. The last section gets at least TAIL_TILES tiles per multiprocessor if there
// are so many: its short tiles fill the gaps that long tiles leave.
static int32_t section_count(const struct forward_work *work)
{
    int64_t tiles = (int64_t)TAIL_TILES * work->multiprocessors;
    int64_t last = (tiles + work->tile_count - 1) / work->tile_count;
    int64_t sections = (work->heads - last) / work->section + 1;
    return sections < 1 || last > work->heads ? 1 : (int32_t)sections;
}

// Orders the tiles by worklist_order(). The last section of tiles gets, for each multiprocessor,
// 3/2 times the blocks of the longest tile, so that no tile takes longer than all the others.
static void list_order(struct worklist *list, const struct forward_instance *instance,
                       const struct forward_work *work, const struct attention_shape *shape)
{
    int64_t key_bytes = (shape->d_qk + shape->d_v) * dtype_bytes(shape->dtype);
    int64_t kv_heads = work->section / shape->group > 0 ? work->section / shape->group : 1;
    int32_t heads_last = work->heads - (work->sections - 1) * work->section;
    int64_t blocks = (int64_t)work->multiprocessors * list->tiles[0].blocks * 3 / 2;
    int64_t bytes = section_bytes(instance, shape, list);
    worklist_order(list, shape->row_step, bytes / (key_bytes * kv_heads), blocks / heads_last);
}

// A prepared forward: everything that a launch needs except the tensors.
struct forward_prepared {
    struct attention_work base;
    const struct forward_instance *instance;
    enum case_dtype dtype;
    bool aligned; // attention_op.aligned: tensors begin at multiples of 16 bytes
    struct forward_work work;
    struct worklist list; // empty after forward_place_cuda()
};

// Fills in x->work from the operation and the work list, and orders the list.
static void work_set(struct attention_backend *backend, const struct attention_op *op,
                     struct forward_prepared *x)
{
    const struct attention_shape *shape = &op->shape;
    struct forward_work *work = &x->work;
    struct worklist *list = &x->list;
    work->tile_count = list->tile_count;
    work->heads = shape->heads;
    work->kv_heads = shape->kv_heads;
    work->group = shape->group;
    work->head_phase = shape->head_phase;
    work->d_qk = shape->d_qk;
    work->d_v = shape->d_v;
    work->q_rows = shape->q_rows;
    work->row_step = shape->row_step;
    work->q_positions =
        sm90_extent_of(op->slices, op->slice_count, shape->row_step, true).positions;
    work->kv_positions =
        sm90_extent_of(op->slices, op->slice_count, shape->row_step, false).positions;
    work->bias_head_stride = shape->bias_head_stride;
    work->bias_once = shape->dbias_once;
    work->bias_query_stride = shape->bias_row_step * shape->bias_row_stride;
    work->cap = (float)(shape->softcap * LOG2_E);
    work->factor = (float)(shape->scale * (shape->softcap != 0 ? 1 / shape->softcap : LOG2_E));
    work->bias_factor = shape->softcap != 0 ? LOG2_E : LOG2_E / work->factor;
    work->multiprocessors = backend->queue.sm_count;
    work->section = section_heads(x->instance, shape, list);
    work->sections = section_count(work);
    list_order(list, x->instance, work, shape);
}

static size_t tiles_bytes(const struct worklist *list)
{
    return (size_t)list->tile_count * sizeof(*list->tiles);
}

static size_t fragments_bytes(const struct worklist *list)
{
    return (size_t)list->fragment_count * sizeof(*list->fragments);
}

// Returns the first portable instance that covers the head dimensions and fits in the shared memory
// of the device; NULL if there is none.
static const struct forward_instance *instance_portable(const struct attention_backend *backend,
                                                        const struct attention_shape *shape)
{
    static const struct forward_instance *const halves[] = {&forward_64, &forward_128,
                                                            &forward_192_128, &forward_256};
    static const struct forward_instance *const floats[] = {&forward_fp32_64, &forward_fp32_128,
                                                            &forward_fp32_256};
    bool single = shape->dtype == DTYPE_FP32;
    const struct forward_instance *const *all = single ? floats : halves;
    size_t count = single ? sizeof(floats) / sizeof(*floats) : sizeof(halves) / sizeof(*halves);
    for (size_t i = 0; i < count; i++)
        if (shape->d_qk <= all[i]->d_qk && shape->d_v <= all[i]->d_v &&
            all[i]->shared_bytes <= backend->queue.shared_bytes_max)
            return all[i];
    return NULL;
}

static const struct forward_instance *instance_choose(const struct attention_backend *backend,
                                                      const struct attention_forward *args)
{
#ifdef CPATTN_SM90
    if (forward_sm90_supports(backend, args))
        return forward_sm90_instance(args);
#endif
    return instance_portable(backend, &args->shape);
}

// Stand-in for the arguments of launches, for the choice of an instance. Pointers are NULL or not,
// and aligned or not, as those of the operation will be.
static struct attention_forward args_like(const struct attention_op *op)
{
    alignas(16) static float place[2];
    float *tensor = op->aligned ? place : place + 1;
    struct attention_forward args = {};
    args.shape = op->shape;
    args.q = args.k = args.v = args.o = args.lse = tensor;
    args.bias = op->bias ? tensor : NULL;
    args.max_logit = op->max_logit ? tensor : NULL;
    args.slices = op->slices;
    args.slice_count = op->slice_count;
    return args;
}

static enum status instance_find(struct attention_backend *backend, const struct attention_op *op,
                                 const struct forward_instance **instance, struct error *error)
{
    const struct attention_forward args = args_like(op);
    enum status status = check_shape(&op->shape, error);
    if (status != STATUS_OK)
        return status;
    *instance = instance_choose(backend, &args);
    return *instance ? STATUS_OK
                     : error_set(error, STATUS_UNIMPLEMENTED,
                                 "head dimensions of %d and %d take more shared memory than the "
                                 "%d bytes that a thread block of device %d can have",
                                 op->shape.d_qk, op->shape.d_v, backend->queue.shared_bytes_max,
                                 backend->queue.device);
}

// Builds the work list, with the last `last` queries in tiles of WORK_GROUP_ROWS rows, and fills in
// x->work.
static enum status list_make(struct attention_backend *backend, const struct attention_op *op,
                             struct forward_prepared *x, int64_t last, struct error *error)
{
    struct worklist *list = &x->list;
    struct work_cut cut = x->instance->cut;
    cut.unit = op->bias ? BIAS_UNIT : 0;
    cut.part = WORK_GROUP_ROWS;
    cut.last = last;
    enum status status = worklist_build(list, &op->shape, op->slices, op->slice_count, cut, error);
    if (status != STATUS_OK || list->tile_count == 0)
        return status;
    if ((int64_t)list->tile_count * op->shape.heads > INT_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "%d tiles of %d heads are more than one launch takes", list->tile_count,
                         op->shape.heads);
    work_set(backend, op, x);
    return STATUS_OK;
}

// Estimated time of a launch, in units of struct forward_times; -1: out of memory.
static int64_t list_time(const struct forward_prepared *x)
{
    const struct forward_work *work = &x->work;
    struct work_load load = {work->multiprocessors, work->heads, work->section, work->sections};
    memcpy(load.group_time, x->instance->times.group, sizeof(load.group_time));
    load.tile_time = x->instance->times.tile;
    return worklist_time(&x->list, &load);
}

// Cuts the last queries into small tiles if the last round of thread blocks is at most half full
// and the estimated time then is shorter.
static enum status list_improve(struct attention_backend *backend, const struct attention_op *op,
                                struct forward_prepared *x, struct error *error)
{
    const int32_t processors = x->work.multiprocessors, heads = x->work.heads;
    const int64_t blocks = (int64_t)x->list.tile_count * heads, over = blocks % processors;
    if (x->instance->times.tile == 0 || blocks <= processors ||
        blocks > (int64_t)ROUNDS_MOST * processors || over == 0 || over > processors / 2)
        return STATUS_OK;
    int64_t least = list_time(x);
    least -= least / GAIN_PARTS;
    // n: large tiles of each head to cut, about as many as the last round has.
    for (int64_t n = over / heads + (over < heads); n <= over / heads + 1; n++) {
        struct forward_prepared trial = *x;
        trial.list = (struct worklist){};
        enum status status = list_make(backend, op, &trial, n * x->instance->cut.rows, error);
        int64_t time = status == STATUS_OK ? list_time(&trial) : -1;
        struct worklist worse = trial.list;
        if (time >= 0 && time < least) {
            least = time;
            worse = x->list;
            *x = trial;
        }
        worklist_fini(&worse);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status work_make(struct attention_backend *backend, const struct attention_op *op,
                             struct forward_prepared *x, struct error *error)
{
    enum status status = instance_find(backend, op, &x->instance, error);
    if (status == STATUS_OK)
        status = list_make(backend, op, x, 0, error);
    if (status == STATUS_OK && x->list.tile_count > 0)
        status = list_improve(backend, op, x, error);
    return status;
}

enum status forward_prepare_cuda(struct attention_backend *backend, const struct attention_op *op,
                                 struct attention_work **work, struct op_needs *needs,
                                 struct error *error)
{
    struct forward_prepared *x = (struct forward_prepared *)calloc(1, sizeof(*x));
    if (!x)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for an operation");
    x->dtype = op->shape.dtype;
    x->aligned = op->aligned;
    enum status status = work_make(backend, op, x, error);
    if (status != STATUS_OK) {
        forward_discard_cuda(&x->base);
        return status;
    }
    needs->folds = x->instance->folds;
    if (x->list.tile_count > 0) {
        needs->table_bytes = tiles_bytes(&x->list) + fragments_bytes(&x->list);
        needs->zero_bytes = sizeof(*x->work.taken);
    }
    *work = &x->base;
    return STATUS_OK;
}

void forward_place_cuda(struct attention_work *work, void *host, const void *device, void *zeros)
{
    struct forward_prepared *x = (struct forward_prepared *)work;
    size_t tiles = tiles_bytes(&x->list);
    memcpy(host, x->list.tiles, tiles);
    memcpy((char *)host + tiles, x->list.fragments, fragments_bytes(&x->list));
    x->work.tiles = (const struct work_tile *)device;
    x->work.fragments = (const struct work_fragment *)((const char *)device + tiles);
    x->work.taken = (int32_t *)zeros;
    worklist_fini(&x->list);
}

// ---- launch -------------------------------------------------------------------------------------

static bool is_aligned(const struct attention_forward *args)
{
    uintptr_t addresses = (uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v;
    return addresses % 16 == 0 && args->shape.d_qk % 8 == 0 && args->shape.d_v % 8 == 0;
}

static void work_point(struct forward_work *work, const struct attention_forward *args)
{
    work->q = args->q;
    work->k = args->k;
    work->v = args->v;
    work->bias = args->bias;
    work->o = args->o;
    work->lse = args->lse;
    work->max_logit = args->max_logit;
    work->fold = args->fold;
    work->aligned = is_aligned(args);
}

enum status forward_launch_cuda(struct attention_backend *backend,
                                const struct attention_work *work,
                                const struct attention_forward *args, struct error *error)
{
    const struct forward_prepared *x = (const struct forward_prepared *)work;
    if (x->work.tile_count == 0)
        return cuda_report(backend, error);
    struct forward_work launched = x->work;
    work_point(&launched, args);
    if (x->aligned && ((uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v |
                       (uintptr_t)args->o | (uintptr_t)args->fold.out) %
                          16)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensors of a forward are not aligned as they were said to be");
    bool plain = !launched.bias && !launched.max_logit && launched.cap == 0 && launched.aligned &&
                 launched.factor > 0;
    cuda_note(backend, x->instance->launch(launched, x->dtype, plain, backend->queue.stream),
              "the forward kernel");
    return cuda_report(backend, error);
}

void forward_discard_cuda(struct attention_work *work)
{
    struct forward_prepared *x = (struct forward_prepared *)work;
    worklist_fini(&x->list);
    free(x);
}
