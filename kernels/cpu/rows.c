// SPDX-License-Identifier: Apache-2.0
// Packs, adds and merges rows between packed tensors and the tensors of a plan.
#include <math.h>
#include <string.h>

#include "kernels/cpu/tile.h"

static const void *element(const void *tensor, enum case_dtype dtype, int64_t index)
{
    return (const char *)tensor + index * dtype_bytes(dtype);
}

static void vector_merge(const struct vector_ops *vector, float *o, float *o_lse, float *part,
                         int d_v, float lse)
{
    if (lse == -INFINITY)
        return;
    if (*o_lse == -INFINITY) {
        memcpy(o, part, (size_t)d_v * sizeof(float));
        *o_lse = lse;
        return;
    }
    double max = fmax(*o_lse, lse);
    double old_weight = exp(*o_lse - max), new_weight = exp(lse - max);
    double weights = old_weight + new_weight;
    vector->blend(o, (float)(old_weight / weights), part, (float)(new_weight / weights), d_v);
    *o_lse = (float)(max + log(weights));
}

void cpu_merge_rows(struct attention_backend *backend, const struct attention_shape *shape,
                    const struct packed_rows *rows, enum case_dtype dtype, const void *o_packed,
                    const float *lse_packed, enum packed_layout layout, float *o, float *lse)
{
    float part[HEAD_DIM_MAX];
    int d_v = shape->d_v;
    for (int32_t n = 0; n < rows->run_count; n++) {
        const struct row_run *run = &rows->runs[n];
        for (int64_t i = 0; i < run->count; i++)
            for (int head = 0; head < shape->heads; head++) {
                int64_t row = run->row + i * rows->row_step;
                int64_t from = ((run->packed + i) * shape->heads + head) * d_v;
                backend->vector->load(dtype, element(o_packed, dtype, from), part, d_v);
                vector_merge(backend->vector, o + (row * shape->heads + head) * d_v,
                             lse + head * shape->q_rows + row, part, d_v,
                             lse_packed[packed_value(layout, run, i, head, shape->heads)]);
            }
    }
}

void cpu_pack_rows(struct attention_backend *backend, const struct packed_rows *rows, int64_t width,
                   enum case_dtype dtype, const float *source, void *packed)
{
    for (int32_t n = 0; n < rows->run_count; n++) {
        const struct row_run *run = &rows->runs[n];
        for (int64_t i = 0; i < run->count; i++) {
            int64_t to = (run->packed + i) * width * dtype_bytes(dtype);
            backend->vector->store(dtype, source + (run->row + i * rows->row_step) * width,
                                   (char *)packed + to, width);
        }
    }
}

#define PIECE 256 // elements that are converted at once

static void row_add(const struct vector_ops *vector, enum case_dtype dtype, const void *from,
                    float *to, int64_t width)
{
    float piece[PIECE];
    for (int64_t i = 0; i < width; i += PIECE) {
        int count = (int)(width - i < PIECE ? width - i : PIECE);
        vector->load(dtype, element(from, dtype, i), piece, count);
        vector->add(to + i, piece, count);
    }
}

void cpu_add_rows(struct attention_backend *backend, const struct packed_rows *rows, int64_t width,
                  enum case_dtype dtype, const void *packed, float *destination)
{
    for (int32_t n = 0; n < rows->run_count; n++) {
        const struct row_run *run = &rows->runs[n];
        for (int64_t i = 0; i < run->count; i++)
            row_add(backend->vector, dtype, element(packed, dtype, (run->packed + i) * width),
                    destination + (run->row + i * rows->row_step) * width, width);
    }
}

void cpu_pack_heads(struct attention_backend *backend, const struct attention_shape *shape,
                    const struct packed_rows *rows, enum packed_layout layout, const float *source,
                    float *packed)
{
    (void)backend;
    for (int32_t n = 0; n < rows->run_count; n++) {
        const struct row_run *run = &rows->runs[n];
        for (int head = 0; head < shape->heads; head++)
            for (int64_t i = 0; i < run->count; i++)
                packed[packed_value(layout, run, i, head, shape->heads)] =
                    source[head * shape->q_rows + run->row + i * rows->row_step];
    }
}
