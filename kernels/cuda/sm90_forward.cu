// SPDX-License-Identifier: Apache-2.0
// Host side of the forward for sm_90a: supported calls, choice of the instance, tensor maps.
#include "kernels/cuda/sm90_forward.h"

#include <limits.h>

#include "kernels/cuda/sm90.cuh"
#include "kernels/cuda/sm90_tensor.h"

// Smallest supported scale. Without a softcap the kernels multiply biases by 1 / scale.
#define SCALE_LEAST 1e-12

static bool is_aligned(const struct attention_forward *args)
{
    uintptr_t addresses =
        (uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v | (uintptr_t)args->o;
    return addresses % 16 == 0 && args->shape.d_qk % 8 == 0 && args->shape.d_v % 8 == 0;
}

static bool shape_fits(const struct attention_forward *args)
{
    const struct attention_shape *shape = &args->shape;
    return shape->dtype != DTYPE_FP32 && shape->scale >= SCALE_LEAST && is_aligned(args);
}

static bool rows_are_mapped(const struct attention_forward *args, bool queries)
{
    struct sm90_extent extent =
        sm90_extent_of(args->slices, args->slice_count, args->shape.row_step, queries);
    return extent.whole && extent.positions <= INT_MAX && args->shape.row_step <= INT_MAX;
}

bool forward_sm90_supports(const struct attention_backend *backend,
                           const struct attention_forward *args)
{
    return backend->capability == 90 && shape_fits(args) && forward_sm90_instance(args) &&
           rows_are_mapped(args, true) && rows_are_mapped(args, false) && sm90_tensor_maps();
}

static const struct forward_instance *instance_plain(const struct attention_shape *shape)
{
    static const struct forward_instance *const all[] = {&forward_sm90_64, &forward_sm90_96,
                                                         &forward_sm90_128, &forward_sm90_192_128,
                                                         &forward_sm90_256};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (shape->d_qk <= all[i]->d_qk && shape->d_v <= all[i]->d_v)
            return all[i];
    return NULL;
}

static bool has_mask(const struct attention_forward *args)
{
    for (int i = 0; i < args->slice_count; i++)
        if (args->slices[i].left < SLICE_UNBOUNDED || args->slices[i].right < SLICE_UNBOUNDED)
            return true;
    return false;
}

static const struct forward_instance *instance_biased(const struct forward_sm90_features *features,
                                                      const struct attention_forward *args)
{
    if (args->shape.softcap != 0)
        return &features->both;
    return has_mask(args) ? &features->bias : &features->bias_full;
}

static const struct forward_instance *instance_with(const struct attention_forward *args)
{
    static const struct forward_sm90_features *const all[] = {
        &forward_sm90_features_64, &forward_sm90_features_128, &forward_sm90_features_192_128,
        &forward_sm90_features_256};
    const struct attention_shape *shape = &args->shape;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (shape->d_qk <= all[i]->max.d_qk && shape->d_v <= all[i]->max.d_v) {
            if (args->bias)
                return instance_biased(all[i], args);
            return shape->softcap != 0 ? &all[i]->cap : &all[i]->max;
        }
    return NULL;
}

const struct forward_instance *forward_sm90_instance(const struct attention_forward *args)
{
    bool plain = args->shape.softcap == 0 && !args->bias && !args->max_logit;
    return plain ? instance_plain(&args->shape) : instance_with(args);
}

// ---- tensor maps --------------------------------------------------------------------------------

static cudaError_t bias_map(const struct forward_work &work, enum case_dtype dtype, int rows,
                            struct sm90_forward *args)
{
    const struct sm90_matrix bias = {work.bias, dtype, work.bias_query_stride};
    args->bias_mapped = sm90_matrix_fits(&bias);
    return args->bias_mapped ? sm90_matrix_map(&bias, SM90_PANEL_COLUMNS, rows, &args->bias)
                             : cudaSuccess;
}

cudaError_t sm90_forward_args(const struct forward_work &work, enum case_dtype dtype, int rows,
                              int keys, struct sm90_forward *args)
{
    struct sm90_tensor q = {work.q, dtype, work.d_qk, work.heads, work.row_step, work.q_positions};
    struct sm90_tensor k = {work.k,        dtype,         work.d_qk,
                            work.kv_heads, work.row_step, work.kv_positions};
    struct sm90_tensor v = k;
    v.address = work.v;
    v.d = work.d_v;
    args->work = work;
    if (work.cap != 0)
        cap_series_set(work.factor, work.cap, &args->work.cap_series);
    cudaError_t error = sm90_tensor_map(&q, rows, &args->q);
    if (error == cudaSuccess)
        error = sm90_tensor_map(&k, keys, &args->k);
    if (error == cudaSuccess)
        error = sm90_tensor_map(&v, keys, &args->v);
    return error == cudaSuccess ? bias_map(work, dtype, rows, args) : error;
}
