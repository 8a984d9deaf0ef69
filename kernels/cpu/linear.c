// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/blas.h"
#include "kernels/cpu/gemm.h"
#include "kernels/dtype.h"
#include "kernels/gemm.h"
#include "kernels/vector.h"

// Number of elements that are converted at a time.
#define PIECE 512

static char *element_at(const void *data, enum case_dtype dtype, int64_t index)
{
    return (char *)data + index * dtype_bytes(dtype);
}

// ---- products -----------------------------------------------------------------------------------

static bool cblas_supports(struct attention_backend *backend, const struct gemm *g)
{
    (void)backend;
    return g->m <= INT32_MAX && g->n <= INT32_MAX && g->k <= INT32_MAX;
}

static int64_t rows_of_a(const struct gemm *g)
{
    return g->form == PRODUCT_TN ? g->k : g->m;
}

// A factor in fp32: the matrix itself, or a copy converted to `room`.
static struct matrix widened(const struct gemm *g, const void *data, int64_t rows, int64_t columns,
                             float *room)
{
    struct matrix m = {data, (int)(columns > 0 ? columns : 1)};
    if (g->dtype == DTYPE_FP32)
        return m;
    vector_best()->load(g->dtype, data, room, rows * columns);
    m.data = room;
    return m;
}

static void multiply(const struct gemm *g, struct matrix a, struct matrix b, float *c)
{
    int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    if (k == 0)
        memset(c, 0, (size_t)(g->m * g->n) * sizeof(*c));
    else if (g->form == PRODUCT_NT)
        gemm_nt(m, n, k, 1, a, b, 0, c, n);
    else if (g->form == PRODUCT_NN)
        gemm_nn(m, n, k, 1, a, b, 0, c, n);
    else
        gemm_tn(m, n, k, 1, a, b, 0, c, n);
}

// Adds the bias to C in fp32, and rounds C to the dtype.
static void deliver(const struct gemm *g, float *c, const float *bias)
{
    const struct vector_ops *vector = vector_best();
    for (int64_t row = 0; row < g->m; row++) {
        if (g->bias)
            vector->add(c + row * g->n, bias, g->n);
        if (g->dtype != DTYPE_FP32)
            vector->store(g->dtype, c + row * g->n, element_at(g->c, g->dtype, row * g->n), g->n);
    }
}

static enum status cblas_run(struct attention_backend *backend, const struct gemm *g,
                             struct error *error)
{
    (void)backend;
    int64_t a_rows = rows_of_a(g), a_columns = g->form == PRODUCT_TN ? g->m : g->k;
    int64_t b_rows = g->form == PRODUCT_NT ? g->n : g->k,
            b_columns = g->form == PRODUCT_NT ? g->k : g->n;
    bool narrow = g->dtype != DTYPE_FP32;
    size_t a_count = narrow ? (size_t)(a_rows * a_columns) : 0;
    size_t b_count = narrow ? (size_t)(b_rows * b_columns) : 0;
    size_t c_count = narrow ? (size_t)(g->m * g->n) : 0;
    float *room = malloc((a_count + b_count + c_count + (size_t)g->n) * sizeof(*room));
    if (!room)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a product");
    blas_prepare();
    float *bias = room + a_count + b_count + c_count;
    float *c = narrow ? room + a_count + b_count : g->c;
    if (g->bias)
        vector_best()->load(g->dtype, g->bias, bias, g->n);
    struct matrix a = widened(g, g->a, a_rows, a_columns, room);
    struct matrix b = widened(g, g->b, b_rows, b_columns, room + a_count);
    multiply(g, a, b, c);
    deliver(g, c, bias);
    free(room);
    return STATUS_OK;
}

static const struct gemm_provider gemm_cblas = {
    .name = "cblas", .supports = cblas_supports, .run = cblas_run};

const struct gemm_provider *const cpu_gemm_providers[] = {&gemm_cblas, NULL};

// ---- activations --------------------------------------------------------------------------------

#define SQRT_HALF        0.70710678f
#define SQRT_2_OVER_PI   0.79788456f
#define INVERSE_SQRT_2PI 0.39894228f
#define GELU_CUBE        0.044715f

static float logistic(float x)
{
    return 1 / (1 + expf(-x));
}

// The formulas below avoid cancellation, so that results for large |x| keep their relative
// precision.
static float gelu(float x)
{
    return 0.5f * x * erfcf(-x * SQRT_HALF);
}

static float gelu_slope(float x)
{
    return 0.5f * erfcf(-x * SQRT_HALF) + x * INVERSE_SQRT_2PI * expf(-0.5f * x * x);
}

// (1 + tanh z) / 2 is the logistic function at 2 z.
static float gelu_tanh(float x)
{
    return x * logistic(2 * SQRT_2_OVER_PI * (x + GELU_CUBE * x * x * x));
}

static float gelu_tanh_slope(float x)
{
    float s = logistic(2 * SQRT_2_OVER_PI * (x + GELU_CUBE * x * x * x));
    return s + x * s * (1 - s) * 2 * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBE * x * x);
}

static float value_of(enum activation activation, float x)
{
    return activation == ACTIVATION_GELU        ? gelu(x)
           : activation == ACTIVATION_GELU_TANH ? gelu_tanh(x)
                                                : x;
}

static float slope_of(enum activation activation, float x)
{
    return activation == ACTIVATION_GELU        ? gelu_slope(x)
           : activation == ACTIVATION_GELU_TANH ? gelu_tanh_slope(x)
                                                : 1;
}

static float silu_slope(float x)
{
    float s = logistic(x);
    return s * (1 + x * (1 - s));
}

void cpu_activate(struct attention_backend *backend, enum case_dtype dtype,
                  const struct product *shape, const void *h, void *to)
{
    (void)backend;
    int gates = shape->activation == ACTIVATION_SWIGLU ? 2 : 1;
    for (int64_t row = 0; row < shape->m; row++)
        for (int64_t i = 0; i < shape->n; i++) {
            int64_t at = row * gates * shape->n + i;
            float g = dtype_load(dtype, h, at);
            float value = gates == 2 ? g * logistic(g) * dtype_load(dtype, h, at + shape->n)
                                     : value_of(shape->activation, g);
            dtype_store(dtype, to, row * shape->n + i, value);
        }
}

void cpu_activate_backward(struct attention_backend *backend, enum case_dtype dtype,
                           const struct product *shape, const void *h, const void *d, void *to)
{
    (void)backend;
    int gates = shape->activation == ACTIVATION_SWIGLU ? 2 : 1;
    for (int64_t row = 0; row < shape->m; row++)
        for (int64_t i = 0; i < shape->n; i++) {
            int64_t at = row * gates * shape->n + i;
            float g = dtype_load(dtype, h, at), da = dtype_load(dtype, d, row * shape->n + i);
            if (gates == 1) {
                dtype_store(dtype, to, at, da * slope_of(shape->activation, g));
                continue;
            }
            float u = dtype_load(dtype, h, at + shape->n);
            dtype_store(dtype, to, at, da * u * silu_slope(g));
            dtype_store(dtype, to, at + shape->n, da * (g * logistic(g)));
        }
}

// ---- sums ---------------------------------------------------------------------------------------

void cpu_column_sum(struct attention_backend *backend, enum case_dtype dtype,
                    const struct product *shape, const void *source, void *destination)
{
    const struct vector_ops *vector = vector_best();
    float row[PIECE], sum[PIECE];
    (void)backend;
    for (int64_t first = 0; first < shape->n; first += PIECE) {
        int64_t some = shape->n - first < PIECE ? shape->n - first : PIECE;
        memset(sum, 0, sizeof(sum));
        for (int64_t i = 0; i < shape->m; i++) {
            vector->load(dtype, element_at(source, dtype, i * shape->n + first), row, some);
            vector->add(sum, row, some);
        }
        vector->store(dtype, sum, element_at(destination, dtype, first), some);
    }
}

void cpu_sum_parts(struct attention_backend *backend, enum case_dtype dtype,
                   const struct product *shape, int own_rank, const void *parts, const void *own,
                   const void *bias, void *destination)
{
    const struct vector_ops *vector = vector_best();
    int64_t count = shape->m * shape->n;
    float part[PIECE], sum[PIECE];
    (void)backend;
    for (int64_t row = 0; row < shape->m; row++)
        for (int64_t column = 0; column < shape->n; column += PIECE) {
            int64_t some = shape->n - column < PIECE ? shape->n - column : PIECE;
            int64_t at = row * shape->n + column;
            memset(sum, 0, sizeof(sum));
            for (int rank = 0; rank < shape->k; rank++) {
                const void *from = rank == own_rank ? own : parts;
                int64_t slot = rank == own_rank ? 0 : rank - (rank > own_rank);
                vector->load(dtype, element_at(from, dtype, slot * count + at), part, some);
                vector->add(sum, part, some);
            }
            if (bias) {
                vector->load(dtype, element_at(bias, dtype, column), part, some);
                vector->add(sum, part, some);
            }
            vector->store(dtype, sum, element_at(destination, dtype, at), some);
        }
}
