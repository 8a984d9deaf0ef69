// SPDX-License-Identifier: Apache-2.0
// The parts of the reference of linear layers on a device: triples of fp64 values, error bounds and
// twin's values, [rows][columns] each, and their products with drawn elements.
#ifndef CPATTN_JUDGE_CUDA_LINEAR_PARTS_CUH
#define CPATTN_JUDGE_CUDA_LINEAR_PARTS_CUH

#include <string.h>

#include "common/cuda/queue.h"
#include "judge/cuda/linear_drawn.cuh"

extern "C" {
#include "judge/linear_middle.h"
}

#define THREADS 256

// A triple (judge/linear_triple.h) in one piece of device memory. take() and resize() set it to
// zero.
struct device_triple {
    int64_t rows, columns;
    double *value, *bound, *twin;
};

struct work {
    struct cuda_queue *q;
    const struct linear *l;
    struct linear_sizes sizes;
    enum activation activation;
    double unit, least; // linear_roundoff(), linear_tiny()
    bool failed;        // memory was short
};

static unsigned blocks_for(int64_t count)
{
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return (unsigned)(blocks < (1 << 20) ? blocks : 1 << 20);
}

// Grid-stride loop over i = 0..count-1.
#define FOR_EACH(i, count)                                                                         \
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < (count);                     \
         i += (int64_t)gridDim.x * THREADS)

// ---- triples ------------------------------------------------------------------------------------

static void clear(struct work *w, const struct device_triple *t)
{
    if (!w->failed && t->rows * t->columns > 0)
        queue_note(w->q,
                   cudaMemsetAsync(t->value, 0, 3 * (size_t)(t->rows * t->columns) * sizeof(double),
                                   w->q->stream),
                   "the reference of a layer");
}

static void resize(struct work *w, struct device_triple *t, int64_t rows, int64_t columns)
{
    t->rows = rows;
    t->columns = columns;
    t->bound = t->value + rows * columns;
    t->twin = t->bound + rows * columns;
    clear(w, t);
}

static struct device_triple take(struct work *w, int64_t rows, int64_t columns)
{
    struct device_triple t;
    t.value = (double *)queue_scratch(w->q, 3 * (size_t)(rows * columns) * sizeof(double) + 1);
    w->failed = w->failed || !t.value;
    resize(w, &t, rows, columns);
    return t;
}

static __device__ __forceinline__ struct point point_at(const struct device_triple &t, int64_t i)
{
    struct point p = {t.value[i], t.bound[i], t.twin[i]};
    return p;
}

static __device__ __forceinline__ void point_put(const struct device_triple &t, int64_t i,
                                                 struct point p)
{
    t.value[i] = p.value;
    t.bound[i] = p.bound;
    t.twin[i] = p.twin;
}

struct rounding {
    double unit, least;
};

template <class Dtype>
static __device__ __forceinline__ struct point point_rounded(struct rounding r, struct point p)
{
    p.bound = point_bound_rounded(r.unit, r.least, p.value, p.bound);
    p.twin = (double)Dtype::value(Dtype::round((float)p.twin));
    return p;
}

static struct rounding rounding_of(const struct work *w)
{
    struct rounding r = {w->unit, w->least};
    return r;
}

// Adds the bias to each row of t if there is one, then rounds the elements as when they are written
// to memory.
template <class Dtype>
__global__ __launch_bounds__(THREADS) void finish_kernel(struct device_triple t, bool biased,
                                                         struct drawn bias, struct rounding r)
{
    FOR_EACH(i, t.rows * t.columns)
    {
        struct point p = point_at(t, i);
        if (biased) {
            double b = (double)drawn_at<Dtype>(bias, 0, i % t.columns);
            p.value += b;
            p.twin += b;
            p.bound += 2 * FP32 * fabs(b);
        }
        point_put(t, i, point_rounded<Dtype>(r, p));
    }
}

static void finish(struct work *w, const struct device_triple *t, const struct drawn *bias)
{
    struct drawn none;
    memset(&none, 0, sizeof(none));
    if (w->failed || t->rows * t->columns == 0)
        return;
    with_dtype(w->l->dtype, [&](auto type) {
        finish_kernel<decltype(type)>
            <<<blocks_for(t->rows * t->columns), THREADS, 0, w->q->stream>>>(
                *t, bias != nullptr, bias ? *bias : none, rounding_of(w));
    });
    queue_launched(w->q, "the reference of a layer");
}

// Fills t with drawn elements, which are exact.
template <class Dtype>
__global__ __launch_bounds__(THREADS) void exact_kernel(struct device_triple t, struct drawn d)
{
    FOR_EACH(i, t.rows * t.columns)
    {
        double x = (double)drawn_at<Dtype>(d, i / t.columns, i % t.columns);
        struct point p = {x, 0, x};
        point_put(t, i, p);
    }
}

static void exact(struct work *w, const struct device_triple *t, struct drawn d)
{
    if (w->failed || t->rows * t->columns == 0)
        return;
    with_dtype(w->l->dtype, [&](auto type) {
        exact_kernel<decltype(type)>
            <<<blocks_for(t->rows * t->columns), THREADS, 0, w->q->stream>>>(*t, d);
    });
    queue_launched(w->q, "the reference of a layer");
}

// ---- products -----------------------------------------------------------------------------------

// A factor of a product: a drawn matrix, or a triple with bounds. If transposed, its element (i, k)
// is element (k, i) of `drawn` or `triple`.
struct factor {
    bool is_drawn, transposed;
    struct drawn drawn;
    struct device_triple triple;
};

// C [m][n] += A [m][k] times B [k][n]. A is drawn or a triple; B is drawn.
struct device_product {
    int64_t m, n, k;
    struct factor a, b;
    double sum; // number of terms of the whole sum, for the bound
    bool c_transposed;
    struct device_triple c;
};

#define TILE_M 8
#define TILE_N 64
#define TILE_K 32

template <class Dtype>
static __device__ __forceinline__ struct point factor_at(const struct factor &f, int64_t row,
                                                         int64_t column)
{
    int64_t i = f.transposed ? column : row, k = f.transposed ? row : column;
    if (!f.is_drawn)
        return point_at(f.triple, i * f.triple.columns + k);
    double x = (double)drawn_at<Dtype>(f.drawn, i, k);
    struct point p = {x, 0, x};
    return p;
}

// One block per tile of TILE_M x TILE_N elements of C. A warp has one row; a thread has two
// elements, 32 columns apart.
template <class Dtype>
__global__ __launch_bounds__(THREADS) void product_kernel(const struct device_product p)
{
    __shared__ double a[3][TILE_M][TILE_K], b[TILE_K][TILE_N];
    int64_t row0 = (int64_t)blockIdx.y * TILE_M, column0 = (int64_t)blockIdx.x * TILE_N;
    int row = (int)threadIdx.x / 32, column = (int)threadIdx.x % 32;
    double sums[3][2] = {};
    for (int64_t k0 = 0; k0 < p.k; k0 += TILE_K) {
        struct point x = {0, 0, 0};
        if (row0 + row < p.m && k0 + column < p.k)
            x = factor_at<Dtype>(p.a, row0 + row, k0 + column);
        a[0][row][column] = x.value;
        a[1][row][column] = x.bound + p.sum * FP32 * fabs(x.value);
        a[2][row][column] = x.twin;
        for (int i = (int)threadIdx.x; i < TILE_K * TILE_N; i += THREADS) {
            int64_t k = k0 + i / TILE_N, n = column0 + i % TILE_N;
            b[i / TILE_N][i % TILE_N] = k < p.k && n < p.n ? factor_at<Dtype>(p.b, k, n).value : 0;
        }
        __syncthreads();
        for (int k = 0; k < TILE_K; k++)
            for (int half = 0; half < 2; half++) {
                double y = b[k][column + 32 * half];
                sums[0][half] += a[0][row][k] * y;
                sums[1][half] += a[1][row][k] * fabs(y);
                sums[2][half] += a[2][row][k] * y;
            }
        __syncthreads();
    }
    for (int half = 0; half < 2; half++) {
        int64_t m = row0 + row, n = column0 + column + 32 * half;
        if (m >= p.m || n >= p.n)
            continue;
        int64_t at = p.c_transposed ? n * p.c.columns + m : m * p.c.columns + n;
        p.c.value[at] += sums[0][half];
        p.c.bound[at] += sums[1][half];
        p.c.twin[at] += sums[2][half];
    }
}

static void product(struct work *w, const struct device_product *p)
{
    if (w->failed || p->m == 0 || p->n == 0 || p->k == 0)
        return;
    dim3 grid((unsigned)((p->n + TILE_N - 1) / TILE_N), (unsigned)((p->m + TILE_M - 1) / TILE_M));
    with_dtype(w->l->dtype, [&](auto type) {
        product_kernel<decltype(type)><<<grid, THREADS, 0, w->q->stream>>>(*p);
    });
    queue_launched(w->q, "the reference of a layer");
}

static struct factor factor_drawn(struct drawn d, bool transposed)
{
    struct factor f;
    memset(&f, 0, sizeof(f));
    f.is_drawn = true;
    f.transposed = transposed;
    f.drawn = d;
    return f;
}

static struct factor factor_of(const struct device_triple *t, bool transposed)
{
    struct factor f;
    memset(&f, 0, sizeof(f));
    f.transposed = transposed;
    f.triple = *t;
    return f;
}

#endif
