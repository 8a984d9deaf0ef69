// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "kernels/backend.h"
#include "kernels/cuda/regions_cuda.h"
#include "kernels/cuda/stamp_cuda.h"
#include "kernels/dtype.h"
#include "tests/cuda/fake_cuda.h"

struct fake_backend {
    cudaStream_t stream;
    struct attention_backend *cpu;
};

static struct fake_backend *backends[WORLD_SIZE_MAX];
static int backend_count;

static void insist(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fake_cuda: %s\n", what);
    abort();
}

void fake_backends_free(void)
{
    for (int i = 0; i < backend_count; i++) {
        backend_cpu.destroy(backends[i]->cpu);
        free(backends[i]);
    }
    backend_count = 0;
}

static struct fake_backend *fake_of(struct attention_backend *backend)
{
    return (struct fake_backend *)(void *)backend;
}

struct attention_backend *fake_backend(void)
{
    struct error error;
    struct fake_backend *b = calloc(1, sizeof(*b));
    insist(b && backend_cpu.create(&b->cpu, &error) == STATUS_OK, "no backend");
    b->stream = fake_stream();
    backends[backend_count++] = b;
    return (struct attention_backend *)(void *)b;
}

cudaStream_t attention_cuda_stream(struct attention_backend *backend)
{
    return fake_of(backend)->stream;
}

// Arguments of an operation other than attention. Each operation uses some of the fields.
struct call {
    struct attention_backend *cpu;
    struct attention_shape shape;
    const void *data;
    const float *source, *lse, *d;
    void *destination;
    const struct packed_rows *packed;
    enum case_dtype dtype;
    int64_t count, rows, stride;
    float value;
};

static void call_push(struct attention_backend *backend, void (*work)(void *), struct call call)
{
    call.cpu = fake_of(backend)->cpu;
    fake_push(fake_of(backend)->stream, work, &call, sizeof(call));
}

struct forward_call {
    struct attention_backend *cpu;
    struct attention_forward args;
};

// The fold before the merge: sets O to 0 (`begins`) and LSE to lse_begin (`lse_begins`) in rows
// that see a key. Their other rows become NaN, because real kernels may leave them uninitialised.
static void fold_begin(const struct forward_call *call)
{
    const struct attention_forward *args = &call->args;
    const struct attention_shape *s = &args->shape;
    const int64_t width = (int64_t)s->heads * s->d_v;
    if (args->fold.begins)
        backend_cpu.fill(call->cpu, args->o, NAN, s->q_rows * width);
    if (args->fold.lse_begins)
        backend_cpu.fill(call->cpu, args->lse, NAN, s->heads * s->q_rows);
    for (int32_t i = 0; i < args->slice_count && args->fold.begins; i++) {
        int64_t begin, end;
        slice_seeing(&args->slices[i], &begin, &end);
        for (int64_t q = begin; q < end; q++) {
            int64_t row = args->slices[i].q_row + q * s->row_step;
            backend_cpu.fill(call->cpu, args->o + row * width, 0, width);
            for (int32_t h = 0; h < s->heads && args->fold.lse_begins; h++)
                args->lse[h * s->q_rows + row] = args->fold.lse_begin;
        }
    }
}

// The fold after the merge: rounds rows of O that see a key to fold.out. With out_only, the fp32 O
// becomes NaN, because real kernels need not write it.
static void fold_end(const struct forward_call *call)
{
    const struct attention_forward *args = &call->args;
    const struct attention_shape *s = &args->shape;
    int64_t width = (int64_t)s->heads * s->d_v, element = dtype_bytes(s->dtype);
    for (int32_t i = 0; i < args->slice_count && args->fold.out; i++) {
        int64_t begin, end;
        slice_seeing(&args->slices[i], &begin, &end);
        for (int64_t q = begin; q < end; q++) {
            int64_t at = (args->slices[i].q_row + q * s->row_step) * width;
            backend_cpu.convert(call->cpu, s->dtype, args->o + at,
                                (char *)args->fold.out + at * element, width);
        }
    }
    if (args->fold.out_only)
        backend_cpu.fill(call->cpu, args->o, NAN, s->q_rows * width);
}

static void forward_run(void *arguments)
{
    struct forward_call *call = arguments;
    const struct attention_fold *fold = &call->args.fold;
    struct error error;
    insist(call->args.shape.softcap == 0 || !(fold->begins || fold->lse_begins || fold->out),
           "a fold that was not offered");
    fold_begin(call);
    insist(backend_cpu.attention->forward(call->cpu, &call->args, &error) == STATUS_OK, "forward");
    fold_end(call);
}

// Needs no tables or scratch. Offers folds only without a softcap, and queries_begin only to a
// deterministic backward.
static enum status prepare(struct attention_backend *backend, const struct attention_op *op,
                           struct attention_work **work, struct op_needs *needs,
                           struct error *error)
{
    (void)backend;
    (void)error;
    *work = NULL;
    needs->folds = op->shape.softcap == 0;
    needs->begins_queries = needs->folds && op->shape.deterministic;
    return STATUS_OK;
}

static enum status forward(struct attention_backend *backend, const struct attention_forward *args,
                           struct error *error)
{
    struct forward_call call = {fake_of(backend)->cpu, *args};
    (void)error;
    fake_push(fake_of(backend)->stream, forward_run, &call, sizeof(call));
    return STATUS_OK;
}

struct backward_call {
    struct attention_backend *cpu;
    struct attention_backward args;
};

// Sets the gradient to 0 in the rows of queries that see a key (`queries`), or of keys that a query
// sees. A row has heads * d elements.
static void gradient_begin(struct attention_backend *cpu, const struct attention_backward *args,
                           bool queries, float *gradient, int64_t heads, int64_t d)
{
    for (int32_t n = 0; n < args->slice_count; n++) {
        const struct slice *s = &args->slices[n];
        int64_t begin, end, first = queries ? s->q_row : s->kv_row;
        slice_met(s, queries, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            backend_cpu.fill(cpu, gradient + (first + i * args->shape.row_step) * heads * d, 0,
                             heads * d);
    }
}

// Rounds the rows of keys that a query sees to `out`. Then the slices' rows of the fp32 gradient
// become NaN, because real kernels need not write them.
static void gradient_end(struct attention_backend *cpu, const struct attention_backward *args,
                         float *gradient, void *out, int64_t d)
{
    const struct attention_shape *shape = &args->shape;
    int64_t width = shape->kv_heads * d, element = dtype_bytes(shape->dtype);
    for (int32_t n = 0; n < args->slice_count; n++) {
        const struct slice *s = &args->slices[n];
        int64_t begin, end;
        slice_met(s, false, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            int64_t at = (s->kv_row + i * shape->row_step) * width;
            backend_cpu.convert(cpu, shape->dtype, gradient + at, (char *)out + at * element,
                                width);
        }
    }
    for (int32_t n = 0; n < args->slice_count; n++) {
        const struct slice *s = &args->slices[n];
        for (int64_t i = 0; i < s->kv_len; i++)
            backend_cpu.fill(cpu, gradient + (s->kv_row + i * shape->row_step) * width, NAN, width);
    }
}

static void backward_run(void *arguments)
{
    struct backward_call *call = arguments;
    const struct attention_backward *args = &call->args;
    struct error error;
    insist(!args->queries_begin || args->shape.deterministic, "queries that begin");
    insist(args->shape.softcap == 0 || !(args->queries_begin || args->keys_begin || args->dk_out),
           "a fold that was not offered");
    if (args->queries_begin)
        gradient_begin(call->cpu, args, true, args->dq, args->shape.heads, args->shape.d_qk);
    if (args->keys_begin) {
        gradient_begin(call->cpu, args, false, args->dk, args->shape.kv_heads, args->shape.d_qk);
        gradient_begin(call->cpu, args, false, args->dv, args->shape.kv_heads, args->shape.d_v);
    }
    insist(backend_cpu.attention->backward(call->cpu, &call->args, &error) == STATUS_OK,
           "backward");
    if (args->dk_out) {
        gradient_end(call->cpu, args, args->dk, args->dk_out, args->shape.d_qk);
        gradient_end(call->cpu, args, args->dv, args->dv_out, args->shape.d_v);
    }
}

static enum status backward(struct attention_backend *backend,
                            const struct attention_backward *args, struct error *error)
{
    struct backward_call call = {fake_of(backend)->cpu, *args};
    (void)error;
    fake_push(fake_of(backend)->stream, backward_run, &call, sizeof(call));
    return STATUS_OK;
}

static void row_dot_run(void *arguments)
{
    struct call *c = arguments;
    backend_cpu.row_dot(c->cpu, &c->shape, c->data, c->source, c->destination);
}

static void row_dot(struct attention_backend *backend, const struct attention_shape *shape,
                    const void *d_out, const float *o, float *d)
{
    call_push(backend, row_dot_run,
              (struct call){.shape = *shape, .data = d_out, .source = o, .destination = d});
}

static void add_run(void *arguments)
{
    struct call *c = arguments;
    for (int64_t i = 0; i < c->rows; i++)
        backend_cpu.add(c->cpu, c->source + i * c->count, (float *)c->destination + i * c->stride,
                        c->count);
}

static void add(struct attention_backend *backend, const float *source, float *destination,
                int64_t count)
{
    call_push(
        backend, add_run,
        (struct call){.source = source, .destination = destination, .rows = 1, .count = count});
}

void regions_cuda_add(struct attention_backend *backend, const float *source, float *destination,
                      int64_t rows, int64_t count, int64_t stride)
{
    call_push(backend, add_run,
              (struct call){.source = source,
                            .destination = destination,
                            .rows = rows,
                            .count = count,
                            .stride = stride});
}

static void max_run(void *arguments)
{
    struct call *c = arguments;
    backend_cpu.max(c->cpu, c->source, c->destination, c->count);
}

static void max(struct attention_backend *backend, const float *source, float *destination,
                int64_t count)
{
    call_push(backend, max_run,
              (struct call){.source = source, .destination = destination, .count = count});
}

static void fill_heads_run(void *arguments)
{
    struct call *c = arguments;
    backend_cpu.fill_heads(c->cpu, &c->shape, c->source, c->destination);
}

static void fill_heads(struct attention_backend *backend, const struct attention_shape *shape,
                       const float *source, float *destination)
{
    call_push(backend, fill_heads_run,
              (struct call){.shape = *shape, .source = source, .destination = destination});
}

static void sink_grad_run(void *arguments)
{
    struct call *c = arguments;
    backend_cpu.sink_grad(c->cpu, &c->shape, c->packed, NULL, c->source, c->lse, c->d,
                          c->destination);
}

static void sink_grad(struct attention_backend *backend, const struct attention_shape *shape,
                      const struct packed_rows *rows, void *scratch, const float *sink,
                      const float *lse, const float *d, float *dsink)
{
    (void)scratch;
    call_push(backend, sink_grad_run,
              (struct call){.shape = *shape,
                            .packed = rows,
                            .source = sink,
                            .lse = lse,
                            .d = d,
                            .destination = dsink});
}

static void convert_run(void *arguments)
{
    struct call *c = arguments;
    backend_cpu.convert(c->cpu, c->dtype, c->source, c->destination, c->count);
}

static void convert(struct attention_backend *backend, enum case_dtype dtype, const float *source,
                    void *destination, int64_t count)
{
    call_push(backend, convert_run,
              (struct call){
                  .dtype = dtype, .source = source, .destination = destination, .count = count});
}

struct sum_call {
    struct call call;
    const float *sources[CONVERT_SUMMANDS_MAX];
    int source_count;
};

// Adds the sources in order into a temporary sum; the sources stay unchanged.
static void convert_sum_run(void *arguments)
{
    struct sum_call *s = arguments;
    struct call *c = &s->call;
    float *sum = malloc((size_t)c->count * sizeof(float) + 1);
    insist(sum != NULL, "no memory");
    memcpy(sum, s->sources[0], (size_t)c->count * sizeof(float));
    for (int i = 1; i < s->source_count; i++)
        backend_cpu.add(c->cpu, s->sources[i], sum, c->count);
    backend_cpu.convert(c->cpu, c->dtype, sum, c->destination, c->count);
    free(sum);
}

static void convert_sum(struct attention_backend *backend, enum case_dtype dtype,
                        const float *const *sources, int source_count, void *destination,
                        int64_t count)
{
    struct sum_call s = {.call = {.cpu = fake_of(backend)->cpu,
                                  .dtype = dtype,
                                  .destination = destination,
                                  .count = count},
                         .source_count = source_count};
    memcpy(s.sources, sources, (size_t)source_count * sizeof(*sources));
    fake_push(fake_of(backend)->stream, convert_sum_run, &s, sizeof(s));
}

static void fill_run(void *arguments)
{
    struct call *c = arguments;
    backend_cpu.fill(c->cpu, c->destination, c->value, c->count);
}

static void fill(struct attention_backend *backend, float *destination, float value, int64_t count)
{
    call_push(backend, fill_run,
              (struct call){.destination = destination, .value = value, .count = count});
}

static const struct attention_kernels kernels = {
    .forward = forward, .backward = backward, .prepare = prepare};

const struct backend_ops backend_cuda = {
    .name = "fake",
    .attention = &kernels,
    .row_dot = row_dot,
    .add = add,
    .max = max,
    .fill_heads = fill_heads,
    .sink_grad = sink_grad,
    .convert = convert,
    .convert_sum = convert_sum,
    .fill = fill,
};

static void copy_run(void *arguments)
{
    struct region_copy *c = arguments;
    for (int64_t i = 0; i < c->rows; i++)
        memcpy((char *)c->destination + i * c->destination_stride,
               (const char *)c->source + i * c->source_stride, (size_t)c->bytes);
}

void regions_cuda_copy(struct attention_backend *backend, cudaStream_t stream,
                       const struct region_copy *copies, int count)
{
    (void)backend;
    for (int i = 0; i < count; i++)
        fake_push(stream, copy_run, &copies[i], sizeof(copies[i]));
}

static void region_fill_run(void *arguments)
{
    struct region_fill *f = arguments;
    for (int64_t i = 0; i < f->count; i++)
        f->destination[i] = f->value;
}

void regions_cuda_fill(struct attention_backend *backend, const struct region_fill *fills,
                       int count)
{
    for (int i = 0; i < count; i++)
        fake_push(fake_of(backend)->stream, region_fill_run, &fills[i], sizeof(fills[i]));
}

struct stamp_call {
    uint64_t *time;
    uint32_t *mark, value;
};

static void stamp_run(void *arguments)
{
    struct stamp_call *c = arguments;
    if (c->time)
        *c->time = fake_now();
    if (c->mark)
        *c->mark = c->value;
}

cudaError_t stamp_cuda(cudaStream_t stream, uint64_t *time, uint32_t *mark, uint32_t value)
{
    struct stamp_call call = {time, mark, value};
    fake_push(stream, stamp_run, &call, sizeof(call));
    return cudaSuccess;
}
