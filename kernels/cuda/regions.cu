// SPDX-License-Identifier: Apache-2.0
#include "common/cuda/runs.cuh"
#include "kernels/cuda/dtype.cuh"
#include "kernels/cuda/internal.h"
#include "kernels/cuda/regions_cuda.h"

#define THREADS    256
#define UNROLL     4  // units per thread; a copy reads all of them before it writes one
#define COPIES_MAX 32 // per launch, because the list is a kernel argument

// One copy of a launch. A unit is one memory access; its width divides the sizes, strides and
// addresses of all copies in the list.
struct region_work {
    const char *source;
    char *destination;
    int64_t row_units, units;                  // units of a row, of all rows
    int64_t source_stride, destination_stride; // bytes
    int64_t first_block;                       // of this copy in the launch
};

struct region_list {
    int count;
    struct region_work work[COPIES_MAX];
};

// A merge returns the new unit of the destination.
struct copy_units {
    template <class Unit> static __device__ __forceinline__ Unit merge(Unit source, const Unit *)
    {
        return source;
    }
};

struct add_floats {
    template <class Unit>
    static __device__ __forceinline__ Unit merge(Unit source, const Unit *destination)
    {
        Unit sum = *destination;
        for (int i = 0; i < (int)(sizeof(Unit) / sizeof(float)); i++)
            sum.at[i] += source.at[i];
        return sum;
    }
};

template <class Unit, class Merge>
__global__ __launch_bounds__(THREADS) void region_kernel(const __grid_constant__ region_list list)
{
    int n = 0;
    while (n + 1 < list.count && list.work[n + 1].first_block <= blockIdx.x)
        n++;
    const struct region_work &w = list.work[n];
    int64_t first = (blockIdx.x - w.first_block) * (THREADS * UNROLL) + threadIdx.x;
    Unit units[UNROLL], *to[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) {
        int64_t unit = first + k * THREADS;
        if (unit < w.units) {
            int64_t column, row = divide(unit, w.row_units, &column);
            to[k] = (Unit *)(w.destination + row * w.destination_stride) + column;
            units[k] =
                Merge::merge(((const Unit *)(w.source + row * w.source_stride))[column], to[k]);
        }
    }
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
        if (first + k * THREADS < w.units)
            *to[k] = units[k];
}

// Width of a unit in bytes: the largest power of 2 up to 16 that divides all addresses, sizes and
// strides (those only if rows > 1).
static int64_t width_of(const struct region_copy *copies, int count)
{
    uint64_t all = 16;
    for (int i = 0; i < count; i++) {
        all |= (uintptr_t)copies[i].source | (uintptr_t)copies[i].destination;
        all |= (uint64_t)copies[i].bytes;
        if (copies[i].rows > 1)
            all |= (uint64_t)copies[i].source_stride | (uint64_t)copies[i].destination_stride;
    }
    return (int64_t)(all & -all);
}

// Fills the list with the copies that are not empty. Returns the number of thread blocks.
static int64_t list_make(const struct region_copy *copies, int count, int64_t width,
                         struct region_list *list)
{
    int64_t blocks = 0;
    list->count = 0;
    for (int i = 0; i < count; i++) {
        const struct region_copy *c = &copies[i];
        if (c->rows <= 0 || c->bytes <= 0)
            continue;
        struct region_work *w = &list->work[list->count++];
        w->source = (const char *)c->source;
        w->destination = (char *)c->destination;
        w->row_units = c->bytes / width;
        w->units = c->rows * w->row_units;
        w->source_stride = c->source_stride;
        w->destination_stride = c->destination_stride;
        w->first_block = blocks;
        blocks += (w->units + THREADS * UNROLL - 1) / (THREADS * UNROLL);
    }
    return blocks;
}

template <class Unit, class Merge>
static void launch(struct attention_backend *backend, cudaStream_t stream,
                   const struct region_copy *copies, int count)
{
    struct region_list list;
    int64_t blocks = list_make(copies, count, sizeof(Unit), &list);
    if (blocks == 0)
        return;
    region_kernel<Unit, Merge><<<(unsigned)blocks, THREADS, 0, stream>>>(list);
    cuda_launched(backend, "a copy of regions");
}

static void copy_some(struct attention_backend *backend, cudaStream_t stream,
                      const struct region_copy *copies, int count)
{
    switch (width_of(copies, count)) {
    case 16:
        return launch<vec<uint32_t, 4>, copy_units>(backend, stream, copies, count);
    case 8:
        return launch<uint64_t, copy_units>(backend, stream, copies, count);
    case 4:
        return launch<uint32_t, copy_units>(backend, stream, copies, count);
    case 2:
        return launch<uint16_t, copy_units>(backend, stream, copies, count);
    default:
        return launch<uint8_t, copy_units>(backend, stream, copies, count);
    }
}

void regions_cuda_copy(struct attention_backend *backend, cudaStream_t stream,
                       const struct region_copy *copies, int count)
{
    for (int first = 0; first < count; first += COPIES_MAX)
        copy_some(backend, stream, copies + first,
                  count - first < COPIES_MAX ? count - first : COPIES_MAX);
}

void regions_cuda_add(struct attention_backend *backend, const float *source, float *destination,
                      int64_t rows, int64_t count, int64_t stride)
{
    const int64_t bytes = sizeof(float);
    struct region_copy copy = {source,        destination,   rows,
                               count * bytes, count * bytes, stride * bytes};
    if (width_of(&copy, 1) == 16)
        launch<vec<float, 4>, add_floats>(backend, backend->queue.stream, &copy, 1);
    else
        launch<vec<float, 1>, add_floats>(backend, backend->queue.stream, &copy, 1);
}

// ---- fills --------------------------------------------------------------------------------------

struct fill_list {
    int count;
    struct region_fill fills[REGION_FILLS_MAX];
    int64_t first_block[REGION_FILLS_MAX];
};

// Part `block` of a fill, by the whole thread block.
template <class Unit>
static __device__ __forceinline__ void fill_part(const struct region_fill &f, int64_t block)
{
    constexpr int WIDTH = sizeof(Unit) / sizeof(float);
    Unit unit;
    for (int i = 0; i < WIDTH; i++)
        unit.at[i] = f.value;
    int64_t first = block * (THREADS * UNROLL) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
        if (first + k * THREADS < f.count / WIDTH)
            ((Unit *)f.destination)[first + k * THREADS] = unit;
}

// True if 16-byte stores cover the fill.
static __host__ __device__ bool is_wide(const struct region_fill &f)
{
    return (uintptr_t)f.destination % 16 == 0 && f.count % 4 == 0;
}

__global__ __launch_bounds__(THREADS) void fill_kernel(const __grid_constant__ fill_list list)
{
    int n = 0;
    while (n + 1 < list.count && list.first_block[n + 1] <= blockIdx.x)
        n++;
    int64_t block = blockIdx.x - list.first_block[n];
    if (is_wide(list.fills[n]))
        fill_part<vec<float, 4>>(list.fills[n], block);
    else
        fill_part<vec<float, 1>>(list.fills[n], block);
}

void regions_cuda_fill(struct attention_backend *backend, const struct region_fill *fills,
                       int count)
{
    struct fill_list list;
    int64_t blocks = 0;
    list.count = 0;
    for (int i = 0; i < count; i++) {
        if (fills[i].count <= 0)
            continue;
        int64_t units = is_wide(fills[i]) ? fills[i].count / 4 : fills[i].count;
        list.fills[list.count] = fills[i];
        list.first_block[list.count++] = blocks;
        blocks += (units + THREADS * UNROLL - 1) / (THREADS * UNROLL);
    }
    if (blocks == 0)
        return;
    fill_kernel<<<(unsigned)blocks, THREADS, 0, backend->queue.stream>>>(list);
    cuda_launched(backend, "fills of regions");
}
