// SPDX-License-Identifier: Apache-2.0
// The CPU backend's table, its scratch and its elementwise operations.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/amx.h"
#include "common/blas.h"
#include "common/mutation.h"
#include "common/zeros.h"
#include "kernels/backend.h"
#include "kernels/cpu/amx_tile.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/reduce.h"

// Allocates `count` floats of the scratch; if scratch is NULL, only counts them.
static float *carve(float *scratch, size_t *used, size_t count)
{
    float *piece = scratch ? scratch + *used : NULL;
    size_t line = ZEROS_ALIGNMENT / sizeof(float);
    *used += (count + line - 1) / line * line;
    return piece;
}

static size_t scratch_lay_out(struct attention_backend *backend, float *scratch)
{
    size_t rows = (size_t)TILE_ROWS * HEAD_DIM_MAX, keys = (size_t)TILE_KEYS * HEAD_DIM_MAX;
    size_t scores = (size_t)TILE_ROWS * TILE_SCORE_STRIDE, used = 0;
    backend->q = carve(scratch, &used, rows);
    backend->d_out = carve(scratch, &used, rows);
    backend->out = carve(scratch, &used, rows);
    backend->d_q = backend->out; // forward uses out, backward d_q
    backend->k = carve(scratch, &used, keys);
    backend->v = carve(scratch, &used, keys);
    backend->scores = carve(scratch, &used, scores);
    backend->d_scores = carve(scratch, &used, scores);
    backend->slopes = carve(scratch, &used, TILE_KEYS);
    backend->bias = carve(scratch, &used, TILE_KEYS);
    backend->row_max = carve(scratch, &used, TILE_ROWS);
    backend->row_d = carve(scratch, &used, 2 * TILE_ROWS);
    backend->row_lse = backend->row_max;
    backend->row_sum = (double *)(void *)backend->row_d; // the same: row_sum, row_d
    return used * sizeof(float);
}

static void backend_destroy(struct attention_backend *backend)
{
    if (backend) {
        amx_tiles_destroy(backend->amx);
        free(backend->scratch);
    }
    free(backend);
}

static enum status backend_create(struct attention_backend **backend, struct error *error)
{
    struct attention_backend *b = calloc(1, sizeof(*b));
    if (!b)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the CPU backend");
    size_t bytes = scratch_lay_out(b, NULL);
    void *scratch = zeros_create(bytes, &b->scratch);
    if (!scratch) {
        backend_destroy(b);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "no memory for %zu bytes of scratch of the CPU backend", bytes);
    }
    scratch_lay_out(b, scratch);
    blas_prepare();
    b->vector = vector_best();
    if (amx_usable())
        b->amx = amx_tiles_create();
    if (amx_usable() && !b->amx) {
        backend_destroy(b);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the tiles of AMX");
    }
    *backend = b;
    return STATUS_OK;
}

static void backend_row_dot(struct attention_backend *backend, const struct attention_shape *shape,
                            const void *d_out, const float *o, float *d)
{
    float row_d_out[HEAD_DIM_MAX], row_o[HEAD_DIM_MAX];
    int64_t bytes = dtype_bytes(shape->dtype);
    for (int64_t row = 0; row < shape->q_rows; row++)
        for (int head = 0; head < shape->heads; head++) {
            int64_t first = (row * shape->heads + head) * shape->d_v;
            backend->vector->load(shape->dtype, (const char *)d_out + first * bytes, row_d_out,
                                  shape->d_v);
            const float *out = o + first;
            for (int i = 0; i < shape->d_v && ROUNDS(OUT); i++) {
                float rounded;
                dtype_store(shape->dtype, &rounded, 0, out[i]);
                row_o[i] = dtype_load(shape->dtype, &rounded, 0);
            }
            d[head * shape->q_rows + row] =
                backend->vector->dot(row_d_out, ROUNDS(OUT) ? row_o : out, shape->d_v);
        }
}

static void backend_add(struct attention_backend *backend, const float *source, float *destination,
                        int64_t count)
{
    backend->vector->add(destination, source, count);
}

static void backend_max(struct attention_backend *backend, const float *source, float *destination,
                        int64_t count)
{
    (void)backend;
    for (int64_t i = 0; i < count; i++)
        if (!(source[i] <= destination[i]) && !isnan(destination[i]))
            destination[i] = source[i];
}

static void backend_fill_heads(struct attention_backend *backend,
                               const struct attention_shape *shape, const float *source,
                               float *destination)
{
    (void)backend;
    for (int head = 0; head < shape->heads; head++)
        for (int64_t row = 0; row < shape->q_rows; row++)
            destination[head * shape->q_rows + row] = source[head];
}

static void backend_sink_grad(struct attention_backend *backend,
                              const struct attention_shape *shape, const struct packed_rows *rows,
                              void *scratch, const float *sink, const float *lse, const float *d,
                              float *dsink)
{
    (void)backend;
    (void)scratch;
    for (int head = 0; head < shape->heads; head++) {
        double sum = 0;
        for (int32_t n = 0; n < rows->run_count; n++)
            for (int64_t i = 0; i < rows->runs[n].count; i++) {
                int64_t at = head * shape->q_rows + rows->runs[n].row + i * rows->row_step;
                sum += exp((double)sink[head] - lse[at]) * d[at];
            }
        dsink[head] -= MUTATED(SINK_GRAD_SIGN) ? -(float)sum : (float)sum;
    }
}

static void backend_convert(struct attention_backend *backend, enum case_dtype dtype,
                            const float *source, void *destination, int64_t count)
{
    backend->vector->store(dtype, source, destination, count);
    for (int64_t i = 0; i < count && MUTATED(RESULTS_HALF_PERCENT); i++) {
        float larger = source[i] * 1.005F;
        backend->vector->store(dtype, &larger, (char *)destination + i * dtype_bytes(dtype), 1);
    }
}

static void backend_fill(struct attention_backend *backend, float *destination, float value,
                         int64_t count)
{
    (void)backend;
    for (int64_t i = 0; i < count; i++)
        destination[i] = value;
}

static const struct attention_kernels kernels = {.forward = cpu_forward, .backward = cpu_backward};

const struct backend_ops backend_cpu = {
    .name = "cpu",
    .attention = &kernels,
    .create = backend_create,
    .destroy = backend_destroy,
    .row_dot = backend_row_dot,
    .add = backend_add,
    .max = backend_max,
    .fill_heads = backend_fill_heads,
    .sink_grad = backend_sink_grad,
    .convert = backend_convert,
    .fill = backend_fill,
    .merge_rows = cpu_merge_rows,
    .pack_rows = cpu_pack_rows,
    .add_rows = cpu_add_rows,
    .pack_heads = cpu_pack_heads,
    .reduce = cpu_reduce,
    .divide = cpu_divide,
    .gemm = cpu_gemm_providers,
    .activate = cpu_activate,
    .activate_backward = cpu_activate_backward,
    .column_sum = cpu_column_sum,
    .sum_parts = cpu_sum_parts,
};
