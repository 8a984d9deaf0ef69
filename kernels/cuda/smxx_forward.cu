// SPDX-License-Identifier: Apache-2.0
// Forward on the host: the work list, the choice of an instance, the launch.
#include "kernels/cuda/smxx_forward.h"

#include <limits.h>
#include <string.h>

#include "kernels/cuda/internal.h"
#include "kernels/cuda/sm90_forward.h"
#include "kernels/cuda/sm90_tensor.h"

extern "C" {
#include "kernels/dtype.h"
}

#define TAIL_TILES 4 // of each multiprocessor, in the last section

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

// Query heads of a section: whole groups of key heads, as far as the phase lets them be.
static int32_t section_heads(const struct forward_instance *instance,
                             const struct attention_shape *shape, const struct worklist *list)
{
    int64_t keys = 0;
    for (int32_t i = 0; i < list->tile_count; i++)
        keys = list->tiles[i].blocks > keys ? list->tiles[i].blocks : keys;
    keys *= instance->cut.keys;
    int64_t bytes = keys * (shape->d_qk + shape->d_v) * dtype_bytes(shape->dtype);
    int64_t heads = instance->section_bytes / bytes * shape->group;
    if (heads < shape->group)
        heads = shape->group;
    return (int32_t)(heads < shape->heads ? heads : shape->heads);
}

// The last section shall have enough tiles that the short ones fill up what the long ones leave.
static int32_t section_count(const struct forward_work *work)
{
    int64_t tiles = (int64_t)TAIL_TILES * work->multiprocessors;
    int64_t last = (tiles + work->tile_count - 1) / work->tile_count;
    int64_t sections = (work->heads - last) / work->section + 1;
    return sections < 1 || last > work->heads ? 1 : (int32_t)sections;
}

// Blocks of each multiprocessor in the last section of tiles, in units of the longest tile's: three
// halves, so that no tile lasts longer than the others take for the rest.
static void list_order(struct worklist *list, const struct forward_instance *instance,
                       const struct forward_work *work, const struct attention_shape *shape)
{
    int64_t key_bytes = (shape->d_qk + shape->d_v) * dtype_bytes(shape->dtype);
    int64_t kv_heads = work->section / shape->group > 0 ? work->section / shape->group : 1;
    int32_t heads_last = work->heads - (work->sections - 1) * work->section;
    int64_t blocks = (int64_t)work->multiprocessors * list->tiles[0].blocks * 3 / 2;
    worklist_order(list, shape->row_step, instance->section_bytes / (key_bytes * kv_heads),
                   blocks / heads_last);
}

static bool is_aligned(const struct attention_forward *args)
{
    uintptr_t addresses = (uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v;
    return addresses % 16 == 0 && args->shape.d_qk % 8 == 0 && args->shape.d_v % 8 == 0;
}

static void work_set(struct forward_work *work, const struct forward_instance *instance,
                     const struct attention_forward *args, const struct worklist *list)
{
    const struct attention_shape *shape = &args->shape;
    *work = forward_work{};
    work->q = args->q;
    work->k = args->k;
    work->v = args->v;
    work->bias = args->bias;
    work->o = args->o;
    work->lse = args->lse;
    work->max_logit = args->max_logit;
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
        sm90_extent_of(args->slices, args->slice_count, shape->row_step, true).positions;
    work->kv_positions =
        sm90_extent_of(args->slices, args->slice_count, shape->row_step, false).positions;
    work->bias_head_stride = shape->bias_head_stride;
    work->bias_query_stride = shape->bias_row_step * shape->bias_row_stride;
    work->cap = (float)(shape->softcap * LOG2_E);
    work->factor = (float)(shape->scale * (shape->softcap != 0 ? 1 / shape->softcap : LOG2_E));
    work->aligned = is_aligned(args);
}

// The lists and a zero, in one copy.
static bool work_push(struct attention_backend *backend, struct forward_work *work,
                      const struct worklist *list)
{
    size_t tiles = (size_t)list->tile_count * sizeof(*list->tiles);
    size_t fragments = (size_t)list->fragment_count * sizeof(*list->fragments);
    size_t bytes = tiles + fragments + sizeof(*work->taken);
    void *device;
    char *host = (char *)staging_take(backend, bytes, &device);
    if (!host)
        return false;
    memcpy(host, list->tiles, tiles);
    memcpy(host + tiles, list->fragments, fragments);
    memset(host + tiles + fragments, 0, sizeof(*work->taken));
    list_push_cuda(backend, device, host, bytes);
    work->tiles = (const struct work_tile *)device;
    work->fragments = (const struct work_fragment *)((char *)device + tiles);
    work->taken = (int32_t *)((char *)device + tiles + fragments);
    return true;
}

// The first portable instance for a shape that the device has the shared memory for; NULL if there
// is none.
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

static cudaError_t work_launch(const struct forward_instance *instance,
                               const struct forward_work &work, enum case_dtype dtype,
                               cudaStream_t stream)
{
    bool plain = !work.bias && !work.max_logit && work.cap == 0 && work.aligned && work.factor > 0;
    return instance->launch(work, dtype, plain, stream);
}

static enum status list_launch(struct attention_backend *backend,
                               const struct forward_instance *instance,
                               const struct attention_forward *args, struct worklist *list,
                               struct error *error)
{
    if (list->tile_count == 0)
        return STATUS_OK;
    if ((int64_t)list->tile_count * args->shape.heads > INT_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "%d tiles of %d heads are more than one launch takes", list->tile_count,
                         args->shape.heads);
    struct forward_work work;
    work_set(&work, instance, args, list);
    work.multiprocessors = backend->queue.sm_count;
    work.section = section_heads(instance, &args->shape, list);
    work.sections = section_count(&work);
    list_order(list, instance, &work, &args->shape);
    if (work_push(backend, &work, list))
        cuda_note(backend, work_launch(instance, work, args->shape.dtype, backend->queue.stream),
                  "the forward kernel");
    return cuda_report(backend, error);
}

enum status forward_cuda(struct attention_backend *backend, const struct attention_forward *args,
                         struct error *error)
{
    const struct attention_shape *shape = &args->shape;
    enum status status = check_shape(shape, error);
    if (status != STATUS_OK)
        return status;
    const struct forward_instance *instance = instance_choose(backend, args);
    if (!instance)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "head dimensions of %d and %d take more shared memory than the %d bytes "
                         "that a thread block of device %d can have",
                         shape->d_qk, shape->d_v, backend->queue.shared_bytes_max,
                         backend->queue.device);
    struct worklist list = {};
    status = worklist_build(&list, shape, args->slices, args->slice_count, instance->cut, error);
    if (status == STATUS_OK)
        status = list_launch(backend, instance, args, &list, error);
    worklist_fini(&list);
    return status;
}
