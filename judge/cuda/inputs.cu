// SPDX-License-Identifier: Apache-2.0
#include "common/cuda/runs.cuh"
#include "judge/cuda/draw.cuh"
#include "judge/cuda/dtype.cuh"
#include "judge/cuda/inputs_cuda.h"

extern "C" {
#include "plan/bias.h"
}

#define THREADS 128
#define WIDTH   8 // elements per thread: independent Philox blocks, and one vector store

// Elements [planes][rows][columns], where a row is consecutive both in memory and in the tensor of
// the case. A unit is WIDTH elements of a row, or the rest of a row.
struct draw_run {
    int64_t before; // units of the preceding runs
    int64_t rows, columns;
    int64_t memory, memory_row, memory_plane; // in memory: first element, strides
    uint64_t index, index_row, index_plane;   // in the tensor: first element, strides
};

struct draw_list {
    const struct draw_run *runs;
    int count;
    int64_t units;
};

static __host__ __device__ int64_t row_units(const struct draw_run *run)
{
    return (run->columns + WIDTH - 1) / WIDTH;
}

template <class Dtype>
__global__ __launch_bounds__(THREADS) void draw_kernel(struct draw_list list,
                                                       struct input_draw draw,
                                                       typename Dtype::stored *data)
{
    int64_t unit = (int64_t)blockIdx.x * THREADS + threadIdx.x, row, column;
    if (unit >= list.units)
        return;
    const struct draw_run *run = run_find(list.runs, list.count, unit);
    row = divide(unit - run->before, row_units(run), &column);
    int64_t plane = divide(row, run->rows, &row);
    column *= WIDTH;
    uint64_t index = run->index + row * run->index_row + plane * run->index_plane + column;
    vec<typename Dtype::stored, WIDTH> drawn;
#pragma unroll
    for (int i = 0; i < WIDTH; i++)
        drawn.at[i] = Dtype::round(draw_value(draw, index + i));
    data += run->memory + row * run->memory_row + plane * run->memory_plane + column;
    if (column + WIDTH <= run->columns &&
        reinterpret_cast<uintptr_t>(data) % alignof(decltype(drawn)) == 0)
        vec_store(data, drawn);
    else
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
            if (column + i < run->columns)
                data[i] = drawn.at[i];
}

// ---- lists of runs ------------------------------------------------------------------------------

// A list under construction in staging memory. `runs` is its host side.
struct draw_draft {
    struct draw_run *runs;
    struct draw_list list; // points to device memory
};

static bool draft_begin(struct cuda_queue *queue, size_t most, struct draw_draft *draft)
{
    void *device;
    *draft = {};
    draft->runs = (struct draw_run *)queue_stage(queue, most * sizeof(struct draw_run), &device);
    draft->list.runs = (const struct draw_run *)device;
    return draft->runs != NULL;
}

static void draft_add(struct draw_draft *draft, struct draw_run run, int64_t planes)
{
    if (planes <= 0 || run.rows <= 0 || run.columns <= 0)
        return;
    run.before = draft->list.units;
    draft->list.units += planes * run.rows * row_units(&run);
    draft->runs[draft->list.count++] = run;
}

static void draft_draw(struct cuda_queue *queue, const struct draw_draft *draft,
                       enum case_dtype dtype, struct input_draw draw, void *data)
{
    struct draw_list list = draft->list;
    if (list.units == 0)
        return;
    queue_push(queue, (void *)list.runs, draft->runs, list.count * sizeof(*list.runs));
    unsigned blocks = (unsigned)((list.units + THREADS - 1) / THREADS);
    with_dtype(dtype, [&](auto type) {
        typedef decltype(type) Dtype;
        draw_kernel<Dtype>
            <<<blocks, THREADS, 0, queue->stream>>>(list, draw, (typename Dtype::stored *)data);
    });
    queue_launched(queue, "inputs");
}

// ---- the inputs of a rank -----------------------------------------------------------------------

void inputs_cuda_fill(struct cuda_queue *queue, const struct cp_case *c, enum input_tensor tensor,
                      int rank, const struct span *spans, int count, void *data)
{
    enum shard_side side = tensor == INPUT_K || tensor == INPUT_V ? SIDE_KV : SIDE_Q;
    int64_t width = (int64_t)input_heads(c, tensor) * input_head_dim(c, tensor);
    int64_t rows = shard_rows(c, side, rank);
    if (!case_is_even(c, side)) // all ones are a NaN in every dtype
        queue_note(queue,
                   cudaMemsetAsync(data, 0xff, (size_t)(rows * width * case_element_bytes(c)),
                                   queue->stream),
                   "poison");
    inputs_cuda_fill_spans(queue, c, tensor, spans, count, shard_row_step(c), data);
}

void inputs_cuda_fill_spans(struct cuda_queue *queue, const struct cp_case *c,
                            enum input_tensor tensor, const struct span *spans, int count,
                            int64_t step, void *data)
{
    int64_t width = (int64_t)input_heads(c, tensor) * input_head_dim(c, tensor);
    struct draw_draft draft;
    if (!draft_begin(queue, (size_t)count, &draft))
        return;
    for (int i = 0; i < count; i++) {
        struct draw_run run = {};
        run.memory = spans[i].row * width;
        run.index = input_index(c, tensor, spans[i].sequence, spans[i].position, 0);
        run.rows = step == 1 ? 1 : spans[i].len; // adjacent tokens are one long row
        run.columns = step == 1 ? spans[i].len * width : width;
        run.memory_row = step * width;
        run.index_row = (uint64_t)width;
        draft_add(&draft, run, 1);
    }
    draft_draw(queue, &draft, c->dtype, input_draw_of(c, tensor), data);
}

// Adds the bias of one span's queries for all heads of the rank. `row`: its first row in memory.
static void bias_run_add(struct draw_draft *draft, const struct cp_case *c,
                         const struct bias_shape *shape, const struct span *span, int64_t row)
{
    int64_t step = bias_row_step(c);
    struct draw_run run = {};
    run.rows = step > 0 ? span->len : 1;
    run.columns = shape->columns;
    run.memory = row * shape->columns;
    run.memory_row = step * shape->columns;
    run.memory_plane = shape->rows * shape->columns;
    int head = shape->head_first;
    run.index = input_bias_index(c, span->sequence, head, span->position, 0);
    run.index_row = input_bias_index(c, span->sequence, head, span->position + 1, 0) - run.index;
    run.index_plane = input_bias_index(c, span->sequence, head + 1, span->position, 0) - run.index;
    draft_add(draft, run, shape->heads);
}

void inputs_cuda_fill_bias(struct cuda_queue *queue, const struct cp_case *c, int rank,
                           struct span *spans, void *data)
{
    struct team team = bias_team(c, rank);
    struct bias_shape shape = bias_shape(c, rank);
    struct draw_draft draft;
    if (!draft_begin(queue, (size_t)team.size * (size_t)shard_spans_max(c), &draft))
        return;
    for (int member = 0; member < team.size; member++) {
        int count = shard_spans(c, SIDE_Q, team.first + member, spans);
        for (int i = 0; i < count; i++)
            bias_run_add(&draft, c, &shape, &spans[i], bias_row_of(c, team, member, &spans[i]));
    }
    draft_draw(queue, &draft, c->dtype, input_draw_of(c, INPUT_BIAS), data);
}

void inputs_cuda_fill_sink(struct cuda_queue *queue, const struct cp_case *c, float *sinks)
{
    void *device;
    size_t bytes = (size_t)c->heads * sizeof(float);
    float *staged = (float *)queue_stage(queue, bytes, &device);
    if (!staged)
        return;
    for (int head = 0; head < c->heads; head++)
        staged[head] = input_sink(c, head);
    queue_push(queue, sinks, staged, bytes);
}
