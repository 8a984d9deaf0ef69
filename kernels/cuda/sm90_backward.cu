// SPDX-License-Identifier: Apache-2.0
// Host part of backward on sm_90a: choice of the kernel, tensor maps, launch.
#include "kernels/cuda/sm90_backward.h"

#include "kernels/cuda/sm90_backward_kernel.cuh"

extern "C" {
#include "kernels/cuda/sm90_tensor.h"
}

static bool aligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

static bool device_fits(const struct attention_backend *backend)
{
    int major = 0, minor = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                  backend->queue.device) == cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor,
                                  backend->queue.device) == cudaSuccess &&
           major == 9 && minor == 0 && sm90_tensor_maps();
}

static bool args_fit(const struct attention_backward *args)
{
    const struct attention_shape *shape = &args->shape;
    return shape->d_qk % 8 == 0 && shape->d_v % 8 == 0 &&
           shape->row_step * shape->heads <= INT32_MAX && aligned(args->q) && aligned(args->k) &&
           aligned(args->v) && aligned(args->d_out) && aligned(args->dq) && aligned(args->dk) &&
           aligned(args->dv);
}

static const struct sm90_backward_kernel *kernel_plain(const struct attention_shape *shape)
{
    bool bf16 = shape->dtype == DTYPE_BF16;
    int d = shape->d_qk > shape->d_v ? shape->d_qk : shape->d_v;
    if (d > SM90_BACKWARD_NARROW)
        return bf16 ? sm90_wide_bf16(shape->d_qk, shape->d_v)
                    : sm90_wide_fp16(shape->d_qk, shape->d_v);
    return bf16 ? sm90_backward_bf16(d, shape->deterministic)
                : sm90_backward_fp16(d, shape->deterministic);
}

static const struct sm90_backward_kernel *kernel_capped(const struct attention_shape *shape)
{
    bool bf16 = shape->dtype == DTYPE_BF16;
    int d = shape->d_qk > shape->d_v ? shape->d_qk : shape->d_v;
    if (d > SM90_BACKWARD_NARROW)
        return bf16 ? sm90_wide_capped_bf16(shape->d_qk, shape->d_v)
                    : sm90_wide_capped_fp16(shape->d_qk, shape->d_v);
    return bf16 ? sm90_capped_bf16(d, shape->deterministic)
                : sm90_capped_fp16(d, shape->deterministic);
}

// The kernel for a backward with bias, or NULL: the portable kernels take it. They take two cases:
// - A deterministic dbias to whose elements several tiles contribute. One thread block must work on
//   these tiles in a fixed order (a chain), which only the portable kernels can.
// - Bias with softcap at head dimensions up to 64: the kernels here would pad them to 128.
static const struct sm90_backward_kernel *kernel_biased(const struct attention_backward *args)
{
    const struct attention_shape *shape = &args->shape;
    bool bf16 = shape->dtype == DTYPE_BF16;
    int d = shape->d_qk > shape->d_v ? shape->d_qk : shape->d_v;
    if (args->dbias && shape->deterministic && !shape->dbias_once)
        return NULL;
    if (shape->softcap == 0 && d <= SM90_BACKWARD_NARROW)
        return bf16 ? sm90_biased_bf16(d, shape->deterministic)
                    : sm90_biased_fp16(d, shape->deterministic);
    if (shape->softcap == 0)
        return bf16 ? sm90_wide_biased_bf16(shape->d_qk, shape->d_v)
                    : sm90_wide_biased_fp16(shape->d_qk, shape->d_v);
    if (d <= SM90_GENERAL_ABOVE)
        return NULL;
    return bf16 ? sm90_general_bf16(shape->d_qk, shape->d_v)
                : sm90_general_fp16(shape->d_qk, shape->d_v);
}

static const struct sm90_backward_kernel *kernel_for(const struct attention_backward *args)
{
    if (args->bias)
        return kernel_biased(args);
    return args->shape.softcap != 0 ? kernel_capped(&args->shape) : kernel_plain(&args->shape);
}

const struct sm90_backward_kernel *sm90_backward_choose(const struct attention_backend *backend,
                                                        const struct attention_backward *args)
{
    const struct attention_shape *shape = &args->shape;
    if (shape->dtype == DTYPE_FP32 || !args_fit(args))
        return NULL;
    const struct sm90_backward_kernel *kernel = kernel_for(args);
    if (!kernel || kernel->shared_bytes > backend->queue.shared_bytes_max)
        return NULL;
    return device_fits(backend) ? kernel : NULL;
}

// ---- tensor maps --------------------------------------------------------------------------------

// Makes the tensor maps of one side, queries or keys. After the first failure make() does nothing;
// `error` keeps the failure. The maps have row_step * heads heads: residue row % row_step and head
// are one coordinate, the y of struct sm90_backward_params.
struct mapper {
    int32_t heads;
    int64_t positions;
    enum case_dtype dtype;
    cudaError_t error;

    mapper(const struct attention_shape *shape, int32_t heads_of_side, int64_t rows)
        : heads((int32_t)(shape->row_step * heads_of_side)), positions(rows), dtype(shape->dtype),
          error(cudaSuccess)
    {
    }

    void make(const void *address, enum case_dtype type, int32_t d, int32_t box_rows,
              CUtensorMap *map)
    {
        struct sm90_tensor tensor = {address, type, d, heads, 1, positions};
        if (error == cudaSuccess)
            error = sm90_tensor_map(&tensor, box_rows, map);
    }
};

static cudaError_t maps_make(const struct attention_backward *args,
                             const struct sm90_backward_kernel *kernel,
                             const struct sm90_backward_extent *extent,
                             struct sm90_backward_params *p)
{
    const struct attention_shape *shape = &args->shape;
    int32_t d_qk = shape->d_qk, d_v = shape->d_v;
    mapper queries(shape, shape->heads, extent->q_positions);
    mapper keys(shape, shape->kv_heads, extent->kv_positions);
    queries.make(args->q, queries.dtype, d_qk, kernel->q_rows, &p->q);
    queries.make(args->d_out, queries.dtype, d_v, kernel->q_rows, &p->d_out);
    queries.make(args->dq, DTYPE_FP32, d_qk, kernel->dq_rows, &p->dq);
    keys.make(args->k, keys.dtype, d_qk, kernel->kv_rows, &p->k);
    keys.make(args->v, keys.dtype, d_v, kernel->kv_rows, &p->v);
    keys.make(args->dk, DTYPE_FP32, d_qk, kernel->key_rows, &p->dk);
    keys.make(args->dv, DTYPE_FP32, d_v, kernel->key_rows, &p->dv);
    return queries.error != cudaSuccess ? queries.error : keys.error;
}

// Makes a map of the bias or dbias with boxes of columns x rows. *mapped: whether the matrix and
// the kernel (columns > 0) permit one; if not, no map is made and that is no error.
static cudaError_t bias_map(const struct sm90_matrix *matrix, int32_t columns, int32_t rows,
                            CUtensorMap *map, bool *mapped)
{
    *mapped = columns > 0 && sm90_matrix_fits(matrix);
    return *mapped ? sm90_matrix_map(matrix, columns, rows, map) : cudaSuccess;
}

static cudaError_t bias_maps_make(const struct sm90_backward_kernel *kernel, enum case_dtype dtype,
                                  struct sm90_backward_params *p)
{
    const struct backward_params *all = &p->all;
    const struct sm90_matrix bias = {all->bias, dtype, all->bias_query_stride},
                             dbias = {all->dbias, DTYPE_FP32, all->bias_query_stride};
    cudaError_t error =
        bias_map(&bias, kernel->bias_columns, kernel->q_rows, &p->bias, &p->bias_mapped);
    if (error != cudaSuccess)
        return error;
    return bias_map(&dbias, PANEL_FLOATS, kernel->q_rows, &p->dbias, &p->dbias_mapped);
}

cudaError_t sm90_backward_ready(const struct sm90_backward_kernel *kernel)
{
    return cudaFuncSetAttribute((const void *)kernel->run,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, kernel->shared_bytes);
}

void sm90_backward_launch(struct attention_backend *backend, const struct attention_backward *args,
                          const struct sm90_backward_kernel *kernel,
                          const struct sm90_backward_extent *extent,
                          const struct backward_params *params)
{
    struct sm90_backward_params p = {};
    p.all = *params;
    if (!cuda_note(backend, maps_make(args, kernel, extent, &p), "the tensor maps of backward"))
        return;
    if (!cuda_note(backend, bias_maps_make(kernel, args->shape.dtype, &p),
                   "the tensor maps of the bias"))
        return;
    kernel->run<<<units_count(params), SM90_BACKWARD_THREADS, (size_t)kernel->shared_bytes,
                  backend->queue.stream>>>(p);
    cuda_launched(backend, "backward");
}
