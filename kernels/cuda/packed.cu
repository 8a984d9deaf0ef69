// SPDX-License-Identifier: Apache-2.0
// Merges, packs and adds rows: transfers between packed tensors and tensors of a plan.
#include "kernels/cuda/dtype.cuh"
#include "kernels/cuda/rows_table.cuh"

extern "C" {
#include "kernels/cuda/packed_cuda.h"
}

#define THREADS 256
#define LANES   32

// Row in the plan's tensor of a packed row, which belongs to run r.
static __device__ __forceinline__ int64_t row_of(const struct table &t, const struct device_run *r,
                                                 int64_t packed)
{
    return r->first + (packed - r->before) * t.row_step;
}

// Index of a head's value for a packed row; packed_value() of kernels/rows.h on the device.
static __device__ __forceinline__ int64_t value_of(enum packed_layout layout,
                                                   const struct device_run *r, int64_t packed,
                                                   int64_t head, int64_t heads)
{
    return layout == PACKED_BY_RUN ? r->before * heads + head * r->count + packed - r->before
                                   : packed * heads + head;
}

static unsigned blocks_of(int64_t items, int per_block)
{
    return (unsigned)((items + per_block - 1) / per_block);
}

// ---- merging O and LSE --------------------------------------------------------------------------

struct merge_arguments {
    struct table table;
    int heads, d;
    int64_t q_rows;            // stride of lse between heads
    enum packed_layout layout; // of part_lse
    const void *part;          // O of the packed rows, [total][heads][d]
    const float *part_lse;
    float *o, *lse; // running result: [q_rows][heads][d], [heads][q_rows]
};

// A warp merges one head of one packed row into the running O and LSE. LSE -inf: nothing to merge.
template <class Dtype, int WIDTH>
__global__ __launch_bounds__(THREADS) void merge_kernel(struct merge_arguments a)
{
    typedef typename Dtype::stored stored;
    int64_t head, item = (int64_t)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    int64_t packed = divide(item, a.heads, &head);
    if (packed >= a.table.total)
        return;
    const struct device_run *r = run_find(a.table.runs, a.table.count, packed);
    int64_t row = row_of(a.table, r, packed);
    float *running = &a.lse[head * a.q_rows + row];
    double before = *running, lse = a.part_lse[value_of(a.layout, r, packed, head, a.heads)];
    if (lse == -INFINITY)
        return;
    double most = fmax(before, lse), old_weight = exp(before - most), new_weight = exp(lse - most);
    double weights = old_weight + new_weight;
    float keep = (float)(old_weight / weights), take = (float)(new_weight / weights);
    const stored *from = (const stored *)a.part + item * a.d;
    float *to = a.o + (row * a.heads + head) * a.d;
    for (int i = threadIdx.x % LANES * WIDTH; i < a.d; i += LANES * WIDTH) {
        vec<stored, WIDTH> x = vec_load<WIDTH>(from + i);
        vec<float, WIDTH> y = {};
        if (keep != 0)
            y = vec_load<WIDTH>((const float *)to + i);
        for (int w = 0; w < WIDTH; w++)
            y.at[w] =
                keep == 0 ? Dtype::value(x.at[w]) : keep * y.at[w] + take * Dtype::value(x.at[w]);
        vec_store(to + i, y);
    }
    __syncwarp(); // all lanes have read *running
    if (threadIdx.x % LANES == 0)
        *running = before == -INFINITY ? (float)lse : (float)(most + log(weights));
}

void merge_rows_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                     const struct packed_rows *rows, enum case_dtype dtype, const void *o_packed,
                     const float *lse_packed, enum packed_layout layout, float *o, float *lse)
{
    struct merge_arguments a = {};
    if (shape->heads <= 0 || !table_make(backend, rows, &a.table))
        return;
    a.heads = shape->heads;
    a.d = shape->d_v;
    a.q_rows = shape->q_rows;
    a.layout = layout;
    a.part = o_packed;
    a.part_lse = lse_packed;
    a.o = o;
    a.lse = lse;
    unsigned grid = blocks_of(rows->total * a.heads, THREADS / LANES);
    bool wide = a.d % 4 == 0 && aligned(o, 16) && aligned(o_packed, 16);
    with_dtype(dtype, [&](auto type) {
        typedef decltype(type) Dtype;
        if (wide)
            merge_kernel<Dtype, 4><<<grid, THREADS, 0, backend->queue.stream>>>(a);
        else
            merge_kernel<Dtype, 1><<<grid, THREADS, 0, backend->queue.stream>>>(a);
    });
    cuda_launched(backend, "merging rows");
}

// ---- packing and adding -------------------------------------------------------------------------

struct rows_arguments {
    struct table table;
    int64_t width; // elements of a row
    float *rows;   // tensor of the plan
    void *packed;
};

// A block handles one packed row. ADDS: rows += packed; otherwise packed = rows, rounded.
template <class Dtype, int WIDTH, bool ADDS>
__global__ __launch_bounds__(THREADS) void rows_kernel(struct rows_arguments a)
{
    typedef typename Dtype::stored stored;
    const struct device_run *r = run_find(a.table.runs, a.table.count, blockIdx.x);
    float *row = a.rows + row_of(a.table, r, blockIdx.x) * a.width;
    stored *packed = (stored *)a.packed + blockIdx.x * a.width;
    for (int64_t i = (int64_t)threadIdx.x * WIDTH; i < a.width; i += THREADS * WIDTH) {
        vec<float, WIDTH> x = vec_load<WIDTH>((const float *)row + i);
        vec<stored, WIDTH> y;
        if (ADDS) {
            y = vec_load<WIDTH>((const stored *)packed + i);
            for (int w = 0; w < WIDTH; w++)
                x.at[w] += Dtype::value(y.at[w]);
            vec_store(row + i, x);
        } else {
            for (int w = 0; w < WIDTH; w++)
                y.at[w] = Dtype::round(x.at[w]);
            vec_store(packed + i, y);
        }
    }
}

template <bool ADDS>
static void rows_launch(struct attention_backend *backend, const struct packed_rows *rows,
                        int64_t width, enum case_dtype dtype, float *tensor, void *packed)
{
    struct rows_arguments a = {};
    if (width <= 0 || !table_make(backend, rows, &a.table))
        return;
    a.width = width;
    a.rows = tensor;
    a.packed = packed;
    bool wide = width % 4 == 0 && aligned(tensor, 16) && aligned(packed, 16);
    with_dtype(dtype, [&](auto type) {
        typedef decltype(type) Dtype;
        unsigned grid = (unsigned)rows->total;
        if (wide)
            rows_kernel<Dtype, 4, ADDS><<<grid, THREADS, 0, backend->queue.stream>>>(a);
        else
            rows_kernel<Dtype, 1, ADDS><<<grid, THREADS, 0, backend->queue.stream>>>(a);
    });
    cuda_launched(backend, ADDS ? "adding rows" : "packing rows");
}

void pack_rows_cuda(struct attention_backend *backend, const struct packed_rows *rows,
                    int64_t width, enum case_dtype dtype, const float *source, void *packed)
{
    rows_launch<false>(backend, rows, width, dtype, (float *)source, packed);
}

void add_rows_cuda(struct attention_backend *backend, const struct packed_rows *rows, int64_t width,
                   enum case_dtype dtype, const void *packed, float *destination)
{
    rows_launch<true>(backend, rows, width, dtype, destination, (void *)packed);
}

// ---- packing values of heads --------------------------------------------------------------------

// blockIdx.y is the head; a thread copies the value of one packed row.
__global__ __launch_bounds__(THREADS) void pack_heads_kernel(struct table table, int heads,
                                                             int64_t q_rows,
                                                             enum packed_layout layout,
                                                             const float *source, float *packed)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, head = blockIdx.y;
    if (at >= table.total)
        return;
    const struct device_run *r = run_find(table.runs, table.count, at);
    packed[value_of(layout, r, at, head, heads)] = source[head * q_rows + row_of(table, r, at)];
}

void pack_heads_cuda(struct attention_backend *backend, const struct attention_shape *shape,
                     const struct packed_rows *rows, enum packed_layout layout, const float *source,
                     float *packed)
{
    struct table table;
    if (shape->heads <= 0 || !table_make(backend, rows, &table))
        return;
    dim3 grid(blocks_of(rows->total, THREADS), (unsigned)shape->heads);
    pack_heads_kernel<<<grid, THREADS, 0, backend->queue.stream>>>(
        table, shape->heads, shape->q_rows, layout, source, packed);
    cuda_launched(backend, "packing heads");
}
