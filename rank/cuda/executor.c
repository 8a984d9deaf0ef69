// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/executor.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/fault.h"
#include "kernels/cuda/regions_cuda.h"
#include "rank/cuda/exploration.h"
#include "rank/cuda/graph.h"
#include "rank/cuda/marks.h"
#include "rank/cuda/parcels.h"
#include "rank/cuda/position.h"
#include "rank/operations.h"

// After PATIENCE_NS the wait sleeps NAP_NS between two polls, to leave the core to other processes.
#define PATIENCE_NS (UINT64_C(5) * 1000000)
#define NAP_NS      50000
// Period of updates of the progress word while waiting.
#define LOOK_NS     UINT64_C(500000)

struct cuda_executor {
    struct attention_backend *backend;
    struct transport *transport;
    struct progress *words; // of all ranks
    cudaStream_t streams[PLAN_STREAMS];
    struct marks marks;
    struct events events;
    struct timeline eager; // for plans that are launched operation by operation
    struct graph graph;
    cudaEvent_t last; // recorded and awaited by cuda_executor_wait()

    // Of the current plan.
    const struct cuda_execution *e;
    const struct plan *plan;
    struct operations operations;
    int *event_of;   // [op_count]: event at the end of an operation, if awaited
    bool *awaited;   // [op_count]: another operation waits for this one
    int *ended;      // [op_count]: point at the end of an operation, if awaited
    int computed;    // point after all enqueued work of the compute stream; POINT_NONE: none yet
    int exchanged;   // last recorded point of the exchange stream
    bool exchanging; // the last interval of exchanges is open
    int op_max;
    int32_t filled; // all fills of operations before this index are enqueued
    struct parcels parcels;
    struct timeline *times;
    struct exploration exploration;
    struct position position;
};

// ---- errors ----

static enum status cuda_failed(const struct cuda_executor *x, cudaError_t result,
                               const struct op *op, struct error *error)
{
    (void)x;
    return error_set(
        error, result == cudaErrorMemoryAllocation ? STATUS_RESOURCE_EXHAUSTED : STATUS_INTERNAL,
        "CUDA reports %s: %s%s%s", cudaGetErrorName(result), cudaGetErrorString(result),
        op ? ", at " : "", op ? op_kind_name(op->kind) : "");
}

// ---- exchanges ----

// Index of the last operation that an operation waits for; -1: none.
static int32_t last_awaited(const struct cuda_executor *x, const struct op *op)
{
    int32_t last = -1;
    for (int32_t i = 0; i < op->wait_count; i++) {
        int32_t awaited = x->plan->waits[op->wait_first + i];
        last = awaited > last ? awaited : last;
    }
    return last;
}

// Opens an interval, unless one is open. It begins when the last awaited operation and the previous
// exchange have ended.
static void exchange_begin(struct cuda_executor *x, const struct op *op)
{
    struct intervals *exchanges = &x->times->exchanges;
    int32_t awaited = last_awaited(x, op);
    if (x->exchanging)
        return;
    exchanges->list[exchanges->count].after = x->exchanged;
    exchanges->list[exchanges->count].from = awaited >= 0 ? x->ended[awaited] : x->exchanged;
    x->exchanging = true;
}

// True if the next exchange shares this one's interval: same phase, and it waits for no operation.
static bool exchange_goes_on(const struct cuda_executor *x, int32_t index)
{
    const struct plan *plan = x->plan;
    int32_t next = index + 1;
    while (next < plan->op_count && plan->ops[next].kind != OP_EXCHANGE)
        next++;
    return next < plan->op_count && plan->ops[next].wait_count == 0 &&
           plan->ops[next].phase == plan->ops[index].phase;
}

// Records the end of an exchange, and closes the interval if it is the last. Earlier ends are only
// recorded if awaited, and never in a graph, where an event costs the host as much as all kernels.
static cudaError_t exchange_end(struct cuda_executor *x, int32_t index, cudaStream_t stream)
{
    struct intervals *exchanges = &x->times->exchanges;
    bool goes_on = exchange_goes_on(x, index), captured = x->times->events.captured;
    cudaError_t result = cudaSuccess;
    if (goes_on && (captured || !x->awaited[index]))
        return result;
    if (!x->times->stamped)
        result = timeline_record(x->times, STREAM_COMM, stream, &x->exchanged);
    x->ended[index] = x->exchanged;
    if (goes_on)
        return result;
    exchanges->list[exchanges->count++].to = x->exchanged;
    x->exchanging = false;
    return result;
}

// Makes the transport write the mark of the next exchange, and its end time if times are stamps.
static void exchange_mark(struct cuda_executor *x, int32_t index)
{
    const struct transport_ops *ops = x->transport->ops;
    if (ops->mark)
        ops->mark(x->transport, marks_place(&x->marks, STREAM_COMM), (uint32_t)index + 1);
    if (x->times->stamped && !exchange_goes_on(x, index))
        (void)ops->stamp(x->transport, timeline_stamp(x->times, &x->exchanged));
}

static enum status exchange_put(struct cuda_executor *x, int32_t index, cudaStream_t stream,
                                struct error *error)
{
    const struct op *op = &x->plan->ops[index];
    exchange_begin(x, op);
    cudaError_t result = exploration_poison(&x->exploration, x->e, op, stream);
    if (result == cudaSuccess)
        parcels_pack(&x->parcels, x->e, op, x->backend, stream);
    if (result == cudaSuccess)
        result = exploration_delay(&x->exploration, stream);
    if (result != cudaSuccess)
        return cuda_failed(x, result, op, error);
    exchange_mark(x, index);
    if (!x->parcels.packed)
        x->transport->ops->lay(x->transport, x->parcels.strides);
    enum status status = x->transport->ops->start(x->transport, x->e->job, x->parcels.messages,
                                                  op->transfer_count, error);
    if (status != STATUS_OK)
        return status;
    FAULT(EXCHANGE);
    parcels_unpack(&x->parcels, x->e, op, x->backend, stream);
    result = exchange_end(x, index, stream);
    return result == cudaSuccess ? STATUS_OK : cuda_failed(x, result, op, error);
}

// ---- operations ----

// True if an operation is a fill that may be enqueued together with the fill before it.
static bool fill_follows(const struct cuda_executor *x, int32_t index)
{
    const struct op *op = &x->plan->ops[index];
    return index < x->plan->op_count && op->kind == OP_FILL && op->wait_count == 0 &&
           !x->plan->c.operation_times;
}

_Static_assert(FOLD_PARTS_MAX <= REGION_FILLS_MAX, "a fill is one launch");

// Enqueues consecutive fills as one launch, beginning at `index`. Skips fills that are enqueued
// already, and parts of fills that attentions do (plan/folds.h).
static void fills_put(struct cuda_executor *x, int32_t index)
{
    struct region_fill fills[2 * REGION_FILLS_MAX];
    int count = 0, all = 0;
    if (index < x->filled)
        return;
    do {
        const struct op *op = &x->plan->ops[index];
        struct region parts[FOLD_PARTS_MAX];
        int part_count = operations_fill_parts(&x->operations, op, parts);
        for (int i = 0; i < part_count; i++)
            fills[all++] =
                (struct region_fill){.destination = region_memory(x->e->buffers, &parts[i]),
                                     .count = region_total(&parts[i]) / (int64_t)sizeof(float),
                                     .value = op->value};
        if (all > REGION_FILLS_MAX)
            break;
        count = all;
        index++;
    } while (count < REGION_FILLS_MAX && fill_follows(x, index));
    x->filled = index;
    if (count > 0)
        regions_cuda_fill(x->backend, fills, count);
}

static enum status compute_put(struct cuda_executor *x, const struct op *op, cudaStream_t stream,
                               struct error *error)
{
    const struct region *to = &op->operand[UNARY_DESTINATION];
    cudaError_t result = exploration_delay(&x->exploration, stream);
    // NOLINTNEXTLINE(bugprone-branch-clone): FAULT() is nothing in most builds.
    if (op->phase == PHASE_FORWARD)
        FAULT(FORWARD);
    else
        FAULT(BACKWARD);
    if (result != cudaSuccess)
        return cuda_failed(x, result, op, error);
    if (op->kind == OP_FILL) {
        fills_put(x, (int32_t)(op - x->plan->ops));
        return STATUS_OK;
    }
    if (op->kind == OP_COPY)
        return parcels_copy(&x->parcels, x->e, op, x->backend, stream, error);
    if (op->kind != OP_ADD || to->rows <= 1)
        return operations_run(&x->operations, op, error);
    regions_cuda_add(x->backend, region_memory(x->e->buffers, &op->operand[UNARY_SOURCE]),
                     region_memory(x->e->buffers, to), to->rows, to->bytes / (int64_t)sizeof(float),
                     to->stride / (int64_t)sizeof(float));
    return STATUS_OK;
}

// Sets *point to the end of the compute stream's enqueued work; records it if it is not known.
static cudaError_t computed_put(struct cuda_executor *x, int *point)
{
    cudaError_t result = cudaSuccess;
    if (x->computed == POINT_NONE)
        result =
            timeline_record(x->times, STREAM_COMPUTE, x->streams[STREAM_COMPUTE], &x->computed);
    *point = x->computed;
    return result;
}

// Ends exposed time: at the end of the awaited exchange, or in a graph at a new compute point.
static cudaError_t exposed_end(struct cuda_executor *x, const struct op *op, struct interval *lost)
{
    x->times->exposed.count++;
    x->computed = POINT_NONE;
    if (x->times->events.captured)
        return computed_put(x, &lost->to);
    lost->to = x->ended[last_awaited(x, op)];
    return cudaSuccess;
}

// Makes a stream wait for the operations of `op`'s waits; on the compute stream: exposed time.
static cudaError_t waits_put(struct cuda_executor *x, const struct op *op, cudaStream_t stream)
{
    bool timed = op->stream == STREAM_COMPUTE && op->wait_count > 0;
    struct interval *lost = &x->times->exposed.list[x->times->exposed.count];
    cudaError_t result = timed ? computed_put(x, &lost->from) : cudaSuccess;
    lost->after = lost->from;
    for (int32_t i = 0; i < op->wait_count && result == cudaSuccess; i++) {
        int event = x->event_of[x->plan->waits[op->wait_first + i]];
        result = cudaStreamWaitEvent(stream, x->events.list[event], 0);
    }
    if (timed && result == cudaSuccess)
        result = exposed_end(x, op, lost);
    return result;
}

// Records the start or end of an operation on its stream, with operation_times.
static cudaError_t op_time_record(struct cuda_executor *x, int32_t index, cudaStream_t stream,
                                  bool end)
{
    struct intervals *ops = &x->times->ops;
    if (!x->plan->c.operation_times || index >= OP_TIMES_MAX || x->e->untimed)
        return cudaSuccess;
    ops->count = index + 1;
    struct interval *taken = &ops->list[index];
    cudaError_t result = events_record(&x->times->events, stream, end ? &taken->to : &taken->from);
    taken->after = taken->from;
    return result;
}

// Marks an operation's end: by a memory operation of the stream, in a graph by a kernel. Exchanges
// that the transport marks are left out.
static void mark_put(struct cuda_executor *x, int32_t index)
{
    const struct op *op = &x->plan->ops[index];
    bool by_transport = op->kind == OP_EXCHANGE && x->transport->ops->mark;
    if (position_is_marked(op) && !by_transport)
        marks_put(&x->marks, op->stream, x->streams[op->stream], (uint32_t)index + 1,
                  x->times->events.captured && op->stream == STREAM_COMPUTE);
}

static enum status op_put(struct cuda_executor *x, int32_t index, struct error *error)
{
    const struct op *op = &x->plan->ops[index];
    cudaStream_t stream = x->streams[op->stream];
    position_note(&x->position, op, -1);
    cudaError_t result = waits_put(x, op, stream);
    if (result != cudaSuccess)
        return cuda_failed(x, result, op, error);
    result = op_time_record(x, index, stream, false);
    if (result != cudaSuccess)
        return cuda_failed(x, result, op, error);
    enum status status = op->kind == OP_EXCHANGE ? exchange_put(x, index, stream, error)
                                                 : compute_put(x, op, stream, error);
    if (status != STATUS_OK)
        return status;
    if (op->stream == STREAM_COMPUTE)
        x->computed = POINT_NONE;
    result = op_time_record(x, index, stream, true);
    if (result != cudaSuccess)
        return cuda_failed(x, result, op, error);
    mark_put(x, index);
    if (x->awaited[index] && op->stream == STREAM_COMPUTE)
        result = computed_put(x, &x->ended[index]);
    if (result == cudaSuccess && x->awaited[index])
        result = events_record(&x->events, stream, &x->event_of[index]);
    return result == cudaSuccess ? STATUS_OK : cuda_failed(x, result, op, error);
}

// ---- a whole plan ----

static enum status tables_grow(struct cuda_executor *x, struct error *error)
{
    int op_count = x->plan->op_count + 1;
    if (op_count > x->op_max) {
        free(x->event_of);
        free(x->awaited);
        free(x->ended);
        x->event_of = calloc((size_t)op_count, sizeof(*x->event_of));
        x->awaited = calloc((size_t)op_count, sizeof(*x->awaited));
        x->ended = calloc((size_t)op_count, sizeof(*x->ended));
        x->op_max = x->event_of && x->awaited && x->ended ? op_count : 0;
    }
    if (x->op_max > 0 && timeline_reset(x->times, op_count) &&
        parcels_reserve(&x->parcels, x->plan))
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for %d operations", op_count);
}

static void execution_take(struct cuda_executor *x, const struct cuda_execution *e)
{
    x->e = e;
    x->plan = e->plan;
    x->times = e->plan->c.graph ? &x->graph.timeline : &x->eager;
    x->times->off = e->untimed;
    x->position = (struct position){e->plan, &x->marks, x->words, e->job};
    marks_reset(&x->marks);
}

// True if all times are stamps: in a graph whose exchanges write their end times.
static bool stamps_all(const struct cuda_executor *x)
{
    const struct transport_ops *ops = x->transport->ops;
    return x->plan->c.graph && !x->plan->c.operation_times && ops->stamp &&
           ops->stamp(x->transport, 0);
}

static enum status plan_take(struct cuda_executor *x, struct error *error)
{
    const struct cuda_execution *e = x->e;
    x->operations =
        (struct operations){e->plan, e->buffers, &backend_cuda, x->backend, e->attends, e->scratch};
    enum status status = tables_grow(x, error);
    if (status != STATUS_OK)
        return status;
    events_reset(&x->events);
    x->exploration = exploration_of(x->plan);
    x->times->stamped = stamps_all(x);
    x->filled = 0;
    memset(x->awaited, 0, (size_t)x->plan->op_count * sizeof(*x->awaited));
    for (int32_t i = 0; i < x->plan->op_count; i++)
        x->ended[i] = POINT_NONE;
    for (int32_t i = 0; i < x->plan->wait_count; i++)
        x->awaited[x->plan->waits[i]] = true;
    return STATUS_OK;
}

// Makes one stream wait for the current point of the other.
static cudaError_t streams_join(struct cuda_executor *x, enum plan_stream from, enum plan_stream to)
{
    int event;
    cudaError_t result = events_record(&x->events, x->streams[from], &event);
    if (result == cudaSuccess)
        result = cudaStreamWaitEvent(x->streams[to], x->events.list[event], 0);
    return result;
}

// The last operation of the forward on each stream, or -1.
static void forward_last(const struct plan *plan, int32_t last[PLAN_STREAMS])
{
    for (int stream = 0; stream < PLAN_STREAMS; stream++)
        last[stream] = -1;
    for (int32_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].phase == PHASE_FORWARD)
            last[plan->ops[i].stream] = i;
}

static enum status ops_put(struct cuda_executor *x, struct error *error)
{
    const struct plan *plan = x->plan;
    int32_t last[PLAN_STREAMS];
    enum status status = STATUS_OK;
    cudaError_t result = cudaSuccess;
    forward_last(plan, last);
    for (int stream = 0; stream < PLAN_STREAMS; stream++)
        x->times->forward_end[stream] = x->times->begin;
    for (int32_t i = 0; i < plan->op_count && status == STATUS_OK; i++) {
        enum plan_stream stream = plan->ops[i].stream;
        status = op_put(x, i, error);
        if (status == STATUS_OK && i == last[STREAM_COMM])
            x->times->forward_end[stream] = x->ended[i];
        else if (status == STATUS_OK && i == last[STREAM_COMPUTE])
            result = computed_put(x, &x->times->forward_end[stream]);
        if (result != cudaSuccess)
            status = cuda_failed(x, result, &plan->ops[i], error);
    }
    return status;
}

// Enqueues the plan. Exchanges run after the inputs are filled, and later work after the exchanges.
static enum status plan_put(struct cuda_executor *x, struct error *error)
{
    struct timeline *times = x->times;
    cudaStream_t compute = x->streams[STREAM_COMPUTE];
    times->begin_ns = clock_now_ns();
    cudaError_t result = timeline_begin(times, compute);
    x->exchanged = times->begin;
    x->exchanging = false;
    x->computed = POINT_NONE;
    if (result == cudaSuccess)
        result = streams_join(x, STREAM_COMPUTE, STREAM_COMM);
    if (result != cudaSuccess)
        return cuda_failed(x, result, NULL, error);
    if (x->e->attends)
        attends_begin(x->e->attends);
    enum status status = ops_put(x, error);
    if (status != STATUS_OK)
        return status;
    struct interval *tail = &times->exposed.list[times->exposed.count++];
    result = computed_put(x, &tail->from);
    tail->after = tail->from;
    if (result == cudaSuccess)
        result = streams_join(x, STREAM_COMM, STREAM_COMPUTE);
    if (result == cudaSuccess)
        result = timeline_record(times, STREAM_COMPUTE, compute, &tail->to);
    times->end = tail->to;
    return result == cudaSuccess ? STATUS_OK : cuda_failed(x, result, NULL, error);
}

// ---- graphs ----

static enum status plan_capture(struct cuda_executor *x, const struct graph_arguments *arguments,
                                struct error *error)
{
    cudaStream_t compute = x->streams[STREAM_COMPUTE];
    enum status status = plan_take(x, error);
    if (status != STATUS_OK)
        return status;
    cudaError_t result = graph_begin(&x->graph, arguments, compute);
    if (result != cudaSuccess)
        return cuda_failed(x, result, NULL, error);
    status = plan_put(x, error);
    result = graph_end(&x->graph, status == STATUS_OK ? cudaSuccess : cudaErrorUnknown, compute);
    if (status == STATUS_OK && result != cudaSuccess) {
        status = cuda_failed(x, result, NULL, error);
        error_prefix(error, "the graph of the plan");
    }
    return status;
}

static enum status graph_launch(struct cuda_executor *x, struct error *error)
{
    const struct cuda_execution *e = x->e;
    const struct graph_arguments arguments = {.attends = e->attends->number,
                                              .windows = e->windows,
                                              .staging = e->staging,
                                              .scratch = e->scratch,
                                              .buffers = e->buffers,
                                              .buffer_count = e->plan->buffer_count};
    enum status status = STATUS_OK;
    if (!graph_serves(&x->graph, &arguments))
        status = plan_capture(x, &arguments, error);
    if (status != STATUS_OK)
        return status;
    cudaError_t result = cudaGraphLaunch(x->graph.exec, x->streams[STREAM_COMPUTE]);
    return result == cudaSuccess ? STATUS_OK : cuda_failed(x, result, NULL, error);
}

void cuda_executor_take(struct cuda_executor *x, const struct cuda_execution *e)
{
    execution_take(x, e);
}

enum status cuda_executor_start(struct cuda_executor *x, const struct cuda_execution *e,
                                struct error *error)
{
    execution_take(x, e);
    if (e->plan->c.graph)
        return graph_launch(x, error);
    enum status status = plan_take(x, error);
    return status == STATUS_OK ? plan_put(x, error) : status;
}

// ---- the wait ----

static enum status transport_look(struct cuda_executor *x, struct error *error)
{
    int done;
    return x->transport->ops->progress(x->transport, 0, &done, error);
}

static void nap(uint64_t waited_ns)
{
    struct timespec time = {.tv_nsec = NAP_NS};
    if (waited_ns > PATIENCE_NS)
        nanosleep(&time, NULL);
    else
        sched_yield();
}

static enum status wait_loop(struct cuda_executor *x, struct error *error)
{
    uint64_t start_ns = clock_now_ns(), looked_ns = 0;
    for (;;) {
        cudaError_t result = cudaEventQuery(x->last);
        uint64_t now_ns = clock_now_ns();
        if (result == cudaSuccess)
            return STATUS_OK;
        if (result != cudaErrorNotReady)
            return cuda_failed(x, result, position_look(&x->position), error);
        if (now_ns - looked_ns > LOOK_NS) {
            looked_ns = now_ns;
            position_look(&x->position);
            enum status status = transport_look(x, error);
            if (status != STATUS_OK)
                return status;
        }
        nap(now_ns - start_ns);
    }
}

enum status cuda_executor_wait(struct cuda_executor *x, struct error *error)
{
    cudaError_t result = cudaEventRecord(x->last, x->streams[STREAM_COMPUTE]);
    if (result != cudaSuccess)
        return cuda_failed(x, result, position_look(&x->position), error);
    return wait_loop(x, error);
}

enum status cuda_executor_timings(struct cuda_executor *x, struct timings *timings,
                                  struct op_times *op_times, struct error *error)
{
    cudaError_t result = timeline_read(x->times, timings);
    if (result == cudaSuccess && op_times)
        result = timeline_read_ops(x->times, op_times);
    return result == cudaSuccess ? STATUS_OK : cuda_failed(x, result, NULL, error);
}

// ---- life ----

enum status cuda_executor_create(struct attention_backend *backend, struct transport *transport,
                                 cudaStream_t comm, struct progress *words,
                                 struct cuda_executor **executor, struct error *error)
{
    struct cuda_executor *x = calloc(1, sizeof(*x));
    if (!x)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for an executor");
    x->backend = backend;
    x->transport = transport;
    x->words = words;
    x->streams[STREAM_COMPUTE] = attention_cuda_stream(backend);
    x->streams[STREAM_COMM] = comm;
    events_init(&x->events, false);
    timeline_init(&x->eager);
    graph_init(&x->graph);
    enum status status = marks_init(&x->marks, error);
    if (status == STATUS_OK) {
        cudaError_t result = cudaEventCreateWithFlags(&x->last, cudaEventDisableTiming);
        if (result != cudaSuccess)
            status = cuda_failed(x, result, NULL, error);
    }
    if (status != STATUS_OK) {
        cuda_executor_destroy(x);
        return status;
    }
    *executor = x;
    return STATUS_OK;
}

void cuda_executor_destroy(struct cuda_executor *x)
{
    if (!x)
        return;
    events_fini(&x->events);
    timeline_fini(&x->eager);
    graph_fini(&x->graph);
    marks_fini(&x->marks);
    if (x->last)
        (void)cudaEventDestroy(x->last);
    free(x->event_of);
    free(x->awaited);
    free(x->ended);
    parcels_fini(&x->parcels);
    free(x);
}
