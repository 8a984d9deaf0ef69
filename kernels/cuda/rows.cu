// SPDX-License-Identifier: Apache-2.0
// Operations per row and head: D = rowsum(dO * O), the fill with one value per head, and the
// gradient of the sinks.
#include "kernels/cuda/dtype.cuh"
#include "kernels/cuda/rows_table.cuh"

#define THREADS 256
#define LANES   32

// ---- D = rowsum(dO * O) -------------------------------------------------------------------------

#define DOT_ROWS 4 // rows per group of lanes, with loads in flight together

struct dot_arguments {
    const void *d_out; // [rows][heads][dim]
    const float *o;    // [rows][heads][dim]
    float *d;          // [heads][rows]
    int64_t rows;
    int heads, dim;
    int lanes; // lanes that share a row: a power of 2, up to 32
};

// A block handles rows of one head, so that its results are contiguous. The next block handles the
// same rows of the next head, whose inputs are adjacent in memory.
template <class Dtype, int WIDTH>
__global__ __launch_bounds__(THREADS) void row_dot_kernel(struct dot_arguments a)
{
    typedef typename Dtype::stored stored;
    unsigned head = blockIdx.x % a.heads, tile = blockIdx.x / a.heads;
    int lane = threadIdx.x % a.lanes, group = threadIdx.x / a.lanes, groups = THREADS / a.lanes;
    int64_t first = (int64_t)tile * groups * DOT_ROWS + group;
    float sum[DOT_ROWS] = {};
#pragma unroll
    for (int k = 0; k < DOT_ROWS; k++) {
        int64_t row = first + k * groups;
        int64_t at = (row * a.heads + head) * a.dim;
        if (row < a.rows)
            for (int i = lane * WIDTH; i < a.dim; i += a.lanes * WIDTH) {
                vec<stored, WIDTH> x = vec_load<WIDTH>((const stored *)a.d_out + at + i);
                vec<float, WIDTH> y = vec_load<WIDTH>(a.o + at + i);
                for (int w = 0; w < WIDTH; w++)
                    sum[k] += Dtype::value(x.at[w]) * y.at[w];
            }
    }
#pragma unroll
    for (int k = 0; k < DOT_ROWS; k++) {
        for (int distance = a.lanes / 2; distance > 0; distance /= 2)
            sum[k] += __shfl_xor_sync(0xffffffff, sum[k], distance);
        int64_t row = first + k * groups;
        if (lane == 0 && row < a.rows)
            a.d[head * a.rows + row] = sum[k];
    }
}

template <class Dtype, int WIDTH>
static void row_dot_launch(struct attention_backend *backend, struct dot_arguments a)
{
    a.lanes = 1;
    while (a.lanes < LANES && a.lanes * WIDTH < a.dim)
        a.lanes *= 2;
    int64_t rows = (int64_t)THREADS / a.lanes * DOT_ROWS;
    int64_t blocks = (a.rows + rows - 1) / rows * a.heads;
    row_dot_kernel<Dtype, WIDTH><<<(unsigned)blocks, THREADS, 0, backend->queue.stream>>>(a);
    cuda_launched(backend, "row dot");
}

void row_dot_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                  const void *d_out, const float *o, float *d)
{
    struct dot_arguments a = {};
    a.d_out = d_out;
    a.o = o;
    a.d = d;
    a.rows = shape->q_rows;
    a.heads = shape->heads;
    a.dim = shape->d_v;
    if (a.rows <= 0 || a.heads <= 0)
        return;
    with_dtype(shape->dtype, [&](auto dtype) {
        typedef decltype(dtype) Dtype;
        constexpr int width = 16 / sizeof(typename Dtype::stored);
        if (a.dim % width == 0 && aligned(d_out, 16) && aligned(o, 16))
            row_dot_launch<Dtype, width>(backend, a);
        else
            row_dot_launch<Dtype, 1>(backend, a);
    });
}

// ---- one value for each head --------------------------------------------------------------------

#define FILL_ROWS 4 // rows per thread

__global__ __launch_bounds__(THREADS) void fill_heads_kernel(const float *source,
                                                             float *destination, int64_t rows)
{
    float value = source[blockIdx.y];
    int64_t row = (int64_t)blockIdx.x * (THREADS * FILL_ROWS) + threadIdx.x;
    for (int k = 0; k < FILL_ROWS; k++, row += THREADS)
        if (row < rows)
            destination[blockIdx.y * rows + row] = value;
}

void fill_heads_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                     const float *source, float *destination)
{
    if (shape->q_rows <= 0 || shape->heads <= 0)
        return;
    int64_t tiles = (shape->q_rows + THREADS * FILL_ROWS - 1) / (THREADS * FILL_ROWS);
    dim3 grid((unsigned)tiles, (unsigned)shape->heads);
    fill_heads_kernel<<<grid, THREADS, 0, backend->queue.stream>>>(source, destination,
                                                                   shape->q_rows);
    cuda_launched(backend, "fill heads");
}

// ---- the gradient of the sinks ------------------------------------------------------------------

// Rows that one block sums. The assignment of rows to blocks depends only on the slices, so the
// sum is the same on every device.
#define SINK_ROWS (THREADS * 16)

struct sink_arguments {
    struct table rows;
    int64_t q_rows;
    const float *sink, *lse, *d;
    double *parts; // sums of the blocks, [heads][blocks]
};

// Sums x over the block, in a fixed order. All threads call it, once per kernel. Thread 0 gets the
// sum.
static __device__ double block_sum(double x)
{
    __shared__ double warps[THREADS / LANES];
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(0xffffffff, x, distance);
    if (threadIdx.x % LANES == 0)
        warps[threadIdx.x / LANES] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; threadIdx.x == 0 && w < THREADS / LANES; w++)
        x += warps[w];
    return x;
}

// blockIdx.y is the head; blockIdx.x selects SINK_ROWS packed rows.
__global__ __launch_bounds__(THREADS) void sink_parts_kernel(struct sink_arguments a)
{
    int64_t head = blockIdx.y;
    double sum = 0, sink = a.sink[head];
    for (int k = 0; k < SINK_ROWS / THREADS; k++) {
        int64_t row = (int64_t)blockIdx.x * SINK_ROWS + k * THREADS + threadIdx.x;
        if (row >= a.rows.total)
            break;
        struct device_run run = *run_find(a.rows.runs, a.rows.count, row);
        int64_t at = head * a.q_rows + run.first + (row - run.before) * a.rows.row_step;
        sum += exp(sink - a.lse[at]) * a.d[at];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        a.parts[head * gridDim.x + blockIdx.x] = sum;
}

// A block sums the `count` parts of its head and subtracts the sum from dsink.
__global__ __launch_bounds__(THREADS) void sink_sum_kernel(const double *parts, int count,
                                                           float *dsink)
{
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS)
        sum += parts[(int64_t)blockIdx.x * count + i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        dsink[blockIdx.x] -= (float)sum;
}

static int64_t sink_blocks(const struct packed_rows *rows)
{
    return (rows->total + SINK_ROWS - 1) / SINK_ROWS;
}

size_t sink_grad_scratch_cuda(const struct attention_shape *shape, const struct packed_rows *rows)
{
    return (size_t)(sink_blocks(rows) * shape->heads) * sizeof(double);
}

void sink_grad_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                    const struct packed_rows *rows, void *scratch, const float *sink,
                    const float *lse, const float *d, float *dsink)
{
    struct sink_arguments a = {};
    if (shape->heads <= 0 || !table_make(backend, rows, &a.rows))
        return;
    int64_t blocks = sink_blocks(rows);
    a.q_rows = shape->q_rows;
    a.sink = sink;
    a.lse = lse;
    a.d = d;
    a.parts =
        (double *)(scratch ? scratch : scratch_take(backend, sink_grad_scratch_cuda(shape, rows)));
    if (!a.parts)
        return;
    dim3 grid((unsigned)blocks, (unsigned)shape->heads);
    sink_parts_kernel<<<grid, THREADS, 0, backend->queue.stream>>>(a);
    cuda_launched(backend, "sink gradient");
    sink_sum_kernel<<<shape->heads, THREADS, 0, backend->queue.stream>>>(a.parts, (int)blocks,
                                                                         dsink);
    cuda_launched(backend, "sum of the sink gradient");
}
