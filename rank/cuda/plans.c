// SPDX-License-Identifier: Apache-2.0
// Plans of jobs that are not attention on a GPU, and NCCL's own collectives.
#include "common/guard.h"
#include "kernels/cuda/backend.h"
#include "rank/cuda/engine_state.h"
#include "transport/agree.h"
#include "transport/nccl.h"
#include "transport/peer.h"

static enum status cuda_failed(struct cuda *cuda, cudaError_t result, struct error *error)
{
    cuda->broken = true;
    return error_set(
        error, result == cudaErrorMemoryAllocation ? STATUS_RESOURCE_EXHAUSTED : STATUS_INTERNAL,
        "the job: CUDA reports %s: %s", cudaGetErrorName(result), cudaGetErrorString(result));
}

// ---- memory -------------------------------------------------------------------------------------

static bool in_window(const struct cuda *cuda, int32_t buffer)
{
    return cuda->peer && cuda->window.offsets[buffer] >= 0;
}

// Bytes of a buffer with its guards.
static int64_t around(const struct plan_buffer *b)
{
    return b->before + b->bytes + b->after;
}

enum status cuda_buffers_reserve(struct cuda *cuda, const struct plan *plan, struct error *error)
{
    enum status status = cuda_exchanges_reserve(cuda, plan, error);
    for (int32_t i = 0; i < plan->buffer_count && status == STATUS_OK; i++)
        if (!in_window(cuda, i))
            status = device_arena_add(&cuda->device_bytes, around(&plan->buffers[i]), 1, error);
    return status;
}

cudaError_t cuda_buffers_take(struct cuda *cuda, const struct plan *plan, void **buffers)
{
    char *window = cuda->peer ? transport_peer_window(cuda->peer) : NULL;
    cudaError_t result = cudaSuccess;
    for (int32_t i = 0; i < plan->buffer_count; i++) {
        const struct plan_buffer *b = &plan->buffers[i];
        char *data = in_window(cuda, i)
                         ? window + cuda->window.offsets[i]
                         : (char *)device_arena_take(&cuda->arena, around(b), 1) + b->before;
        buffers[i] = data;
        if (b->before > 0 && result == cudaSuccess)
            result =
                cudaMemsetAsync(data - b->before, GUARD_BYTE, (size_t)b->before, cuda->compute);
        if (b->after > 0 && result == cudaSuccess)
            result = cudaMemsetAsync(data + b->bytes, GUARD_BYTE, (size_t)b->after, cuda->compute);
    }
    return result;
}

static enum status device_reserve(struct cuda *cuda, const struct plan_run *run,
                                  struct error *error)
{
    const struct plan *plan = run->plan;
    cuda->device_bytes = 0;
    enum status status = cuda_buffers_reserve(cuda, plan, error);
    if (status == STATUS_OK)
        status = device_arena_add(&cuda->device_bytes, linear_wide_bytes(plan), 1, error);
    if (status == STATUS_OK)
        status = device_arena_add(&cuda->device_bytes, run->spare_bytes, 1, error);
    cuda->arena.patient = !cuda_windows_held(cuda);
    if (status == STATUS_OK)
        status = device_arena_reserve(&cuda->arena, cuda->device_bytes, error);
    return status;
}

static enum status host_reserve(const struct plan_run *run, struct error *error)
{
    size_t total = 0;
    enum status status = arena_add(&total, run->plan->buffer_count, sizeof(*run->buffers), error);
    return status == STATUS_OK ? arena_reserve(run->arena, total, error) : status;
}

static enum status memory_take(struct cuda *cuda, struct plan_run *run, struct error *error)
{
    const struct plan *plan = run->plan;
    run->buffers = arena_take(run->arena, plan->buffer_count, sizeof(*run->buffers));
    cuda->execution = (struct cuda_execution){
        .plan = plan,
        .buffers = run->buffers,
        .staging = cuda_staging_take(cuda, plan),
        .job = run->job,
        .windows = cuda->peer ? transport_peer_windows(cuda->peer) : 0,
    };
    cudaError_t result = cuda_buffers_take(cuda, plan, run->buffers);
    if (linear_wide_bytes(plan) > 0)
        cuda->execution.scratch = device_arena_take(&cuda->arena, linear_wide_bytes(plan), 1);
    run->spare = run->spare_bytes > 0 ? device_arena_take(&cuda->arena, run->spare_bytes, 1) : NULL;
    return result == cudaSuccess ? STATUS_OK : cuda_failed(cuda, result, error);
}

// Ensures all memory except the windows. *lacks: a rank has too little; on that rank `error` has
// the reason. All ranks call it.
static enum status memory_reserve(struct cuda *cuda, const struct plan_run *run, bool *lacks,
                                  struct error *error)
{
    struct error broken;
    bool all;
    error->text[0] = '\0';
    enum status own = host_reserve(run, error);
    if (own == STATUS_OK)
        own = device_reserve(cuda, run, error);
    if (own != STATUS_OK && own != STATUS_RESOURCE_EXHAUSTED)
        return own;
    enum status status = agree_all(run->control, own == STATUS_OK, &all, &broken);
    *lacks = !all;
    if (status != STATUS_OK)
        *error = broken;
    return status;
}

enum status cuda_plan_reserve(struct engine *e, struct plan_run *run, bool *lacks,
                              struct error *error)
{
    struct cuda *cuda = engine_cuda_self(e);
    bool freed = false;
    *lacks = false;
    enum status status = run->library ? cuda_library_open(cuda, run->control, error) : STATUS_OK;
    if (status == STATUS_OK)
        status = memory_reserve(cuda, run, lacks, error);
    if (status == STATUS_OK && *lacks)
        status = cuda_windows_free(cuda, &freed, error);
    if (status == STATUS_OK && freed)
        status = memory_reserve(cuda, run, lacks, error);
    if (status == STATUS_OK && !*lacks && cuda->peer)
        status = cuda_windows_announce(cuda, run->control, lacks, error);
    if (status == STATUS_OK && !*lacks)
        status = memory_take(cuda, run, error);
    return status;
}

enum status cuda_plan_finish(struct engine *e, struct error *error)
{
    struct cuda *cuda = engine_cuda_self(e);
    return cuda->peer ? transport_peer_trim(cuda->peer, error) : STATUS_OK;
}

// ---- the library's collectives ------------------------------------------------------------------

static enum nccl_element element_of(enum collective_element element)
{
    static const enum nccl_element elements[ELEMENTS] = {
        [ELEMENT_FP32] = NCCL_FP32,   [ELEMENT_FP16] = NCCL_FP16,   [ELEMENT_BF16] = NCCL_BF16,
        [ELEMENT_INT32] = NCCL_INT32, [ELEMENT_INT64] = NCCL_INT64, [ELEMENT_UINT8] = NCCL_UINT8};
    return elements[element];
}

static enum nccl_reduction reduction_of(enum collective_reduction reduction)
{
    static const enum nccl_reduction reductions[REDUCTIONS] = {[REDUCTION_SUM] = NCCL_SUM,
                                                               [REDUCTION_PROD] = NCCL_PROD,
                                                               [REDUCTION_MIN] = NCCL_MIN,
                                                               [REDUCTION_MAX] = NCCL_MAX,
                                                               [REDUCTION_AVG] = NCCL_AVG};
    return reductions[reduction];
}

static struct transport *library_of(const struct cuda *cuda)
{
    return cuda->library ? cuda->library : cuda->transport;
}

// The NCCL call of an operation; false: NCCL has none.
static bool operation_of(enum collective_operation operation, enum nccl_operation *found)
{
    static const enum nccl_operation operations[COLLECTIVE_OPERATIONS] = {
        [COLLECTIVE_ALL_REDUCE] = NCCL_ALL_REDUCE,
        [COLLECTIVE_ALL_GATHER] = NCCL_ALL_GATHER,
        [COLLECTIVE_REDUCE_SCATTER] = NCCL_REDUCE_SCATTER,
        [COLLECTIVE_BROADCAST] = NCCL_BROADCAST,
        [COLLECTIVE_REDUCE] = NCCL_REDUCE};
    *found = operations[operation];
    return *found != 0;
}

// Enqueues an operation without its own NCCL call as a group of sends and receives, as in
// nccl-tests.
static enum status messages_put(struct cuda *cuda, const struct plan_run *run, struct error *error)
{
    const struct collective *c = run->library;
    struct message messages[WORLD_SIZE_MAX];
    int rank = cuda->transport->rank, world = c->world_size, count = 0;
    int64_t bytes = collective_element_bytes(c->dtype);
    const char *send = run->library_send;
    char *receive = run->library_receive;
    if (c->operation == COLLECTIVE_SEND_RECEIVE) {
        size_t all = (size_t)(c->count * bytes);
        messages[count++] = (struct message){.peer = (rank + 1) % world, send, all, NULL, 0};
        messages[count++] =
            (struct message){.peer = (rank + world - 1) % world, NULL, 0, receive, all};
    }
    for (int peer = 0; peer < world && c->operation != COLLECTIVE_SEND_RECEIVE; peer++) {
        size_t out = (size_t)(collective_message(c, rank, peer) * bytes);
        size_t in = (size_t)(collective_message(c, peer, rank) * bytes);
        messages[count++] = (struct message){peer, send, out, receive, in};
        send = send ? send + out : NULL;
        receive = receive ? receive + in : NULL;
    }
    struct transport *library = library_of(cuda);
    return library->ops->start(library, run->job, messages, count, error);
}

static enum status call_put(struct cuda *cuda, const struct plan_run *run, struct error *error)
{
    const struct collective *c = run->library;
    struct nccl_call call = {.element = element_of(c->dtype),
                             .reduction = reduction_of(c->reduction),
                             .send = run->library_send,
                             .receive = run->library_receive,
                             .count = (size_t)c->count,
                             .root = c->root};
    if (!operation_of(c->operation, &call.operation))
        return messages_put(cuda, run, error);
    return transport_nccl_call(library_of(cuda), &call, error);
}

// ---- a run --------------------------------------------------------------------------------------

// Makes one stream wait for the current point of the other.
static cudaError_t join(struct cuda *cuda, cudaStream_t from, cudaStream_t to)
{
    int event;
    cudaError_t result = events_record(&cuda->times, from, &event);
    return result == cudaSuccess ? cudaStreamWaitEvent(to, cuda->times.list[event], 0) : result;
}

static enum status library_put(struct cuda *cuda, const struct plan_run *run, struct error *error)
{
    enum status status = STATUS_OK;
    cuda_executor_take(cuda->executor, &cuda->execution);
    cudaError_t result = join(cuda, cuda->compute, cuda->comm);
    for (int i = 0; i < run->iterations && result == cudaSuccess && status == STATUS_OK; i++)
        status = call_put(cuda, run, error);
    if (result == cudaSuccess && status == STATUS_OK)
        result = join(cuda, cuda->comm, cuda->compute);
    return result == cudaSuccess ? status : cuda_failed(cuda, result, error);
}

// Enqueues the iterations of the plan. Only the last one records times, which saves calls.
static enum status operations_put(struct cuda *cuda, const struct plan_run *run,
                                  struct error *error)
{
    enum status status = STATUS_OK;
    for (int i = 0; i < run->iterations && status == STATUS_OK; i++) {
        cuda->execution.untimed = i + 1 < run->iterations;
        status = cuda_executor_start(cuda->executor, &cuda->execution, error);
    }
    return status;
}

// Fills the times as rank/engine.h says.
static enum status timings_read(struct cuda *cuda, const struct plan_run *run, int begin, int end,
                                struct error *error)
{
    struct timings *timings = run->timings;
    uint64_t ns = 0;
    enum status status = STATUS_OK;
    if (!run->library)
        status = cuda_executor_timings(cuda->executor, timings, run->op_times, error);
    cudaError_t result = events_between_ns(&cuda->times, begin, end, &ns);
    uint64_t backward_ns = timings->backward_ns;
    timings->forward_ns = ns / (uint64_t)run->iterations;
    timings->backward_ns = backward_ns < timings->forward_ns ? backward_ns : 0;
    timings->forward_ns -= timings->backward_ns;
    if (run->library)
        timings->exchange_ns = timings->exposed_ns = timings->forward_ns;
    return status != STATUS_OK || result == cudaSuccess ? status : cuda_failed(cuda, result, error);
}

enum status cuda_plan_execute(struct engine *e, const struct plan_run *run, struct error *error)
{
    struct cuda *cuda = engine_cuda_self(e);
    int begin, end;
    events_reset(&cuda->times);
    cudaError_t result = events_record(&cuda->times, cuda->compute, &begin);
    if (result != cudaSuccess)
        return cuda_failed(cuda, result, error);
    enum status status =
        run->library ? library_put(cuda, run, error) : operations_put(cuda, run, error);
    if (status == STATUS_OK) {
        result = events_record(&cuda->times, cuda->compute, &end);
        status = result == cudaSuccess ? cuda_executor_wait(cuda->executor, error)
                                       : cuda_failed(cuda, result, error);
    }
    if (status == STATUS_OK)
        status = attention_cuda_finish(cuda->backend, error);
    if (status == STATUS_OK)
        status = timings_read(cuda, run, begin, end, error);
    cuda->broken = status != STATUS_OK;
    return status;
}
