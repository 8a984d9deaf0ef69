// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "common/cuda/runs.cuh"
#include "judge/cuda/dtype.cuh"
#include "judge/cuda/padding_cuda.h"

#define LANES 32
#define WARPS 8 // per block; each judges one row

// A run of padding rows.
struct padding_run {
    int64_t before, first, step; // rows of the preceding runs; first row in memory; row stride
    int32_t sequence;
    int64_t position; // of the first row, in its sequence
};

// Findings of the kernels. Elements are numbered in the order of the runs.
struct padding_tally {
    unsigned long long mismatches, nonfinite;
    unsigned long long first; // number of the first element that is not zero
    float first_value;
    unsigned max_abs; // bits of the largest finite magnitude: they order like the magnitudes
};

struct padding_cuda {
    struct padding_tensor tensor;
    int64_t rows;
    int run_count;
    const struct padding_run *runs; // host memory, directly after this struct
    struct padding_tally tally;
};

struct padding_arguments {
    const struct padding_run *runs;
    int run_count;
    int64_t rows, width;
    const void *data;
    struct padding_tally *tally;
};

// Index in memory of the first element of padding row `row`.
static __device__ int64_t row_begin(const struct padding_arguments &a, int64_t row)
{
    const struct padding_run *run = run_find(a.runs, a.run_count, row);
    return (run->first + (row - run->before) * run->step) * a.width;
}

static __device__ void element_judge(struct padding_tally *tally, float got, int64_t number)
{
    if (got == 0)
        return;
    atomicAdd(&tally->mismatches, 1ull);
    atomicMin(&tally->first, (unsigned long long)number);
    if (isfinite(got))
        atomicMax(&tally->max_abs, __float_as_uint(fabsf(got)));
    else
        atomicAdd(&tally->nonfinite, 1ull);
}

template <class Dtype, int WIDTH>
__global__ __launch_bounds__(LANES *WARPS) void padding_kernel(struct padding_arguments a)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / LANES;
    if (row >= a.rows)
        return;
    const typename Dtype::stored *data = (const typename Dtype::stored *)a.data + row_begin(a, row);
    for (int64_t i = threadIdx.x % LANES * WIDTH; i < a.width; i += LANES * WIDTH) {
        vec<typename Dtype::stored, WIDTH> got = vec_load<WIDTH>(data + i);
        for (int w = 0; w < WIDTH; w++)
            element_judge(a.tally, Dtype::value(got.at[w]), row * a.width + i + w);
    }
}

// Reads the value of the first element that is not zero. One thread.
template <class Dtype> __global__ void padding_first_kernel(struct padding_arguments a)
{
    if (a.tally->mismatches == 0)
        return;
    int64_t row = (int64_t)a.tally->first / a.width, column = (int64_t)a.tally->first % a.width;
    a.tally->first_value =
        Dtype::value(((const typename Dtype::stored *)a.data)[row_begin(a, row) + column]);
}

static void padding_launch(struct cuda_queue *queue, enum case_dtype dtype,
                           const struct padding_arguments &a)
{
    unsigned blocks = (unsigned)((a.rows + WARPS - 1) / WARPS);
    with_dtype(dtype, [&](auto type) {
        typedef decltype(type) Dtype;
        constexpr int width = 16 / sizeof(typename Dtype::stored);
        if (a.width % width == 0 && aligned(a.data, 16))
            padding_kernel<Dtype, width><<<blocks, LANES * WARPS, 0, queue->stream>>>(a);
        else
            padding_kernel<Dtype, 1><<<blocks, LANES * WARPS, 0, queue->stream>>>(a);
        queue_launched(queue, "padding");
        padding_first_kernel<Dtype><<<1, 1, 0, queue->stream>>>(a);
        queue_launched(queue, "padding");
    });
}

// Fills the runs and returns their total number of rows. `spans` has room for shard_spans_max().
static int64_t runs_make(const struct cp_case *c, int rank, enum shard_side side,
                         struct span *spans, struct padding_run *runs, int *count)
{
    int64_t rows = 0;
    *count = shard_padding(c, side, rank, spans);
    for (int i = 0; i < *count; i++) {
        runs[i] = {rows, spans[i].row, shard_row_step(c), spans[i].sequence, spans[i].position};
        rows += spans[i].len;
    }
    return rows;
}

const struct padding_cuda *padding_cuda_judge(struct cuda_queue *queue, const struct cp_case *c,
                                              int rank, const struct padding_tensor *tensor)
{
    if (case_is_even(c, tensor->side))
        return NULL;
    size_t most = (size_t)shard_spans_max(c);
    void *device, *unused;
    char *host = (char *)queue_stage(
        queue, sizeof(struct padding_cuda) + most * sizeof(struct padding_run), &device);
    struct span *spans = (struct span *)queue_stage(queue, most * sizeof(*spans), &unused);
    if (!host || !spans)
        return NULL;
    struct padding_cuda *p = (struct padding_cuda *)host;
    struct padding_run *runs = (struct padding_run *)(p + 1);
    *p = {};
    p->tensor = *tensor;
    p->runs = runs;
    p->rows = runs_make(c, rank, tensor->side, spans, runs, &p->run_count);
    p->tally.first = ~0ull;
    if (p->rows == 0)
        return NULL;
    queue_push(queue, device, host, sizeof(*p) + p->run_count * sizeof(*runs));
    struct padding_cuda *there = (struct padding_cuda *)device;
    struct padding_arguments a = {};
    a.runs = (const struct padding_run *)(there + 1);
    a.run_count = p->run_count;
    a.rows = p->rows;
    a.width = (int64_t)tensor->heads * tensor->dim;
    a.data = tensor->data;
    a.tally = &there->tally;
    padding_launch(queue, c->dtype, a);
    queue_pull(queue, &p->tally, &there->tally, sizeof(p->tally));
    return p;
}

static struct element first_bad(const struct padding_cuda *p)
{
    struct element where = {};
    int64_t width = (int64_t)p->tensor.heads * p->tensor.dim;
    int64_t row = (int64_t)p->tally.first / width, column = (int64_t)p->tally.first % width;
    const struct padding_run *run = run_find(p->runs, p->run_count, row);
    where.sequence = run->sequence;
    where.position = run->position + row - run->before;
    where.head = (int32_t)(column / p->tensor.dim);
    where.dim = (int32_t)(column % p->tensor.dim);
    return where;
}

bool padding_cuda_figures(const struct padding_cuda *p, struct figures *figures)
{
    if (!p)
        return false;
    struct figures f = {};
    f.tensor = p->tensor.name;
    f.chunk = CHUNK_PADDING;
    f.worst_row.position = f.first_bad.position = -1;
    f.elements = f.judged = p->rows * p->tensor.heads * p->tensor.dim;
    f.mismatches = (int64_t)p->tally.mismatches;
    f.nonfinite = (int64_t)p->tally.nonfinite;
    float max_abs;
    memcpy(&max_abs, &p->tally.max_abs, sizeof(max_abs));
    f.max_abs = max_abs;
    if (f.mismatches > 0) {
        f.first_bad = first_bad(p);
        f.first_bad_got = p->tally.first_value;
        f.broken = RULE_PADDING;
    }
    *figures = f;
    return true;
}
