// SPDX-License-Identifier: Apache-2.0
#include "rank/cuda/engine.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "judge/cuda/collective_cuda.h"
#include "judge/cuda/digest_cuda.h"
#include "judge/cuda/inputs_cuda.h"
#include "judge/cuda/linear_cuda.h"
#include "judge/cuda/verify.h"
#include "judge/digest.h"
#include "rank/cuda/device.h"
#include "rank/cuda/engine_state.h"
#include "rank/cuda/given.h"
#include "rank/cuda/results_read.h"
#include "rank/diagnose.h"
#include "transport/nccl.h"
#include "transport/peer.h"

// Sets defaults of NCCL's variables; the daemon's environment overrides them. Ranks on one host
// connect over loopback; over several hosts NCCL chooses a network. Multicast (NVLS), which serves
// only reductions, is off.
static void nccl_set(const struct transport *control)
{
    if (control->far == 0)
        (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    (void)setenv("NCCL_NVLS_ENABLE", "0", 0);
}

// Number of hardware queues. A stream that waits for a peer must not block others, so each stream
// needs its own queue: one per peer, and STREAM_QUEUES for compute, exchanges and NCCL. Each queue
// lengthens the creation of a context: with two ranks at once, 32 queues take 0.8 s longer than 8.
#define STREAM_QUEUES     6
#define STREAM_QUEUES_MAX 32

static void queues_set(const struct transport *control)
{
    char text[12];
    int count = STREAM_QUEUES + control->world_size;
    snprintf(text, sizeof(text), "%d", count < STREAM_QUEUES_MAX ? count : STREAM_QUEUES_MAX);
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 0);
}

static struct cuda *self(struct engine *e)
{
    return engine_cuda_self(e);
}

struct attention_backend *engine_cuda_backend(struct engine *e)
{
    return self(e)->backend;
}

static enum status cuda_failed(cudaError_t result, const char *what, struct error *error)
{
    return error_set(
        error, result == cudaErrorMemoryAllocation ? STATUS_RESOURCE_EXHAUSTED : STATUS_INTERNAL,
        "%s: CUDA reports %s: %s", what, cudaGetErrorName(result), cudaGetErrorString(result));
}

// ---- memory ----

static enum status cuda_reserve(struct engine *e, struct job *j, size_t *host_bytes,
                                struct error *error)
{
    struct cuda *cuda = self(e);
    cuda->device_bytes = 0;
    enum status status = providers_choose(&cuda->providers, &cuda->own, j, error);
    if (status == STATUS_OK)
        status =
            device_arena_add(&cuda->device_bytes, (int64_t)j->attends->scratch_bytes, 1, error);
    if (status == STATUS_OK)
        status = cuda_buffers_reserve(cuda, j->plan, error);
    if (status == STATUS_OK)
        status = given_reserve(j, &cuda->device_bytes, error);
    if (status == STATUS_OK && j->c->verify != VERIFY_OFF)
        status = verify_cuda_reserve(j->c, j->rank, host_bytes, &cuda->device_bytes, error);
    return status;
}

static enum status cuda_admit(struct engine *e, const struct job *j, struct error *error)
{
    struct cuda *cuda = self(e);
    cuda->arena.patient = !cuda_windows_held(cuda);
    // Without verification the case is a benchmark, so repeats use alternating memory, which is
    // not in the caches. A graph can only be launched again on the same memory.
    if (j->c->verify == VERIFY_OFF && !j->c->graph)
        return device_arena_reserve_turn(&cuda->arena, cuda->device_bytes, error);
    return device_arena_reserve(&cuda->arena, cuda->device_bytes, error);
}

static enum status cuda_spare(struct engine *e, bool *freed, struct error *error)
{
    return cuda_windows_free(self(e), freed, error);
}

static enum status cuda_join(struct engine *e, const struct job *j, bool *lacks,
                             struct error *error)
{
    struct cuda *cuda = self(e);
    if (!cuda->peer)
        return STATUS_OK;
    return cuda_windows_announce(cuda, j->control, lacks, error);
}

// Frees windows that are too large to keep. Other ranks have mapped them, so all ranks call it.
static enum status windows_trim(struct cuda *cuda, struct error *error)
{
    return cuda->peer ? transport_peer_trim(cuda->peer, error) : STATUS_OK;
}

// ---- inputs ----

static cudaError_t buffers_take(struct cuda *cuda, struct job *j)
{
    cuda->execution = (struct cuda_execution){
        .plan = j->plan,
        .buffers = j->buffers,
        .staging = cuda_staging_take(cuda, j->plan),
        .job = j->number,
        .attends = j->attends,
        .scratch = device_arena_take(&cuda->arena, (int64_t)j->attends->scratch_bytes, 1),
        .windows = cuda->peer ? transport_peer_windows(cuda->peer) : 0,
    };
    cudaError_t result = cuda_buffers_take(cuda, j->plan, j->buffers);
    for (int i = 0; i < j->plan->buffer_count && result == cudaSuccess; i++) {
        const struct plan_buffer *buffer = &j->plan->buffers[i];
        if (buffer->bytes > 0 && !job_role_is_filled(buffer->role))
            result = cudaMemsetAsync(j->buffers[i], 0xff, (size_t)buffer->bytes, cuda->compute);
    }
    return result;
}

// Memory of an input that must be drawn; NULL: the case has no such input, or the client gives it.
static void *drawn_memory(const struct job *j, enum buffer_role role)
{
    return given_has(j, role) ? NULL : job_memory(j, role);
}

static void input_draw(struct cuda *cuda, const struct job *j, enum input_tensor tensor,
                       enum shard_side side, void *data)
{
    if (data)
        inputs_cuda_fill(attention_cuda_queue(cuda->backend), j->c, tensor, j->rank, j->spans[side],
                         j->span_count[side], data);
}

static void inputs_draw(struct cuda *cuda, const struct job *j)
{
    char *kv = drawn_memory(j, BUFFER_INPUT_KV);
    input_draw(cuda, j, INPUT_K, SIDE_KV, kv);
    input_draw(cuda, j, INPUT_V, SIDE_KV, kv ? kv + job_key_bytes(j) : NULL);
    input_draw(cuda, j, INPUT_Q, SIDE_Q, drawn_memory(j, BUFFER_INPUT_Q));
    input_draw(cuda, j, INPUT_DO, SIDE_Q, drawn_memory(j, BUFFER_INPUT_DO));
    float *sink = drawn_memory(j, BUFFER_INPUT_SINK);
    if (sink)
        inputs_cuda_fill_sink(attention_cuda_queue(cuda->backend), j->c, sink);
    void *bias = drawn_memory(j, BUFFER_INPUT_BIAS);
    if (bias)
        inputs_cuda_fill_bias(attention_cuda_queue(cuda->backend), j->c, j->rank,
                              j->spans_of_others, bias);
}

static enum status cuda_prepare(struct engine *e, struct job *j, struct error *error)
{
    struct cuda *cuda = self(e);
    events_reset(&cuda->times);
    cudaError_t result = events_record(&cuda->times, cuda->compute, &cuda->inputs[0]);
    if (result == cudaSuccess)
        result = buffers_take(cuda, j);
    if (result == cudaSuccess)
        result = given_fill(j, cuda->compute);
    if (result == cudaSuccess)
        result = given_push(j, &cuda->arena, cuda->compute, cuda->given);
    if (result == cudaSuccess)
        inputs_draw(cuda, j);
    if (result == cudaSuccess)
        result = events_record(&cuda->times, cuda->compute, &cuda->inputs[1]);
    if (result == cudaSuccess && !cuda->executor)
        result = cudaStreamSynchronize(cuda->compute);
    cuda->broken = result != cudaSuccess;
    return result == cudaSuccess ? STATUS_OK : cuda_failed(result, "the inputs", error);
}

// ---- work ----

static enum status device_wait(struct error *error)
{
    cudaError_t result = cudaDeviceSynchronize();
    return result == cudaSuccess ? STATUS_OK : cuda_failed(result, "the device", error);
}

// The only place in a case where the host waits for the device.
static enum status work_wait(struct cuda *cuda, struct job *j, struct error *error)
{
    struct timings *timings = &j->report->timings;
    enum status status =
        cuda->executor ? cuda_executor_wait(cuda->executor, error) : device_wait(error);
    if (status == STATUS_OK)
        status = attention_cuda_finish(cuda->backend, error);
    if (status == STATUS_OK && cuda->executor)
        status = cuda_executor_timings(cuda->executor, timings, &j->report->op_times, error);
    if (status != STATUS_OK)
        return status;
    cudaError_t result =
        events_between_ns(&cuda->times, cuda->inputs[0], cuda->inputs[1], &timings->inputs_ns);
    return result == cudaSuccess ? STATUS_OK : cuda_failed(result, "timings", error);
}

// Enqueues the digest sums of all results. digest_finish() reads them after the wait.
static void digest_start(struct cuda *cuda, const struct job *j)
{
    for (int i = 0; i < JOB_OUTPUTS; i++) {
        int64_t bytes;
        const void *data = job_buffer(j, job_outputs[i], &bytes);
        cuda->sums[i] =
            bytes > 0 ? digest_cuda_sum(attention_cuda_queue(cuda->backend), data, (size_t)bytes)
                      : NULL;
    }
}

static uint64_t digest_finish(const struct cuda *cuda, const struct job *j)
{
    uint64_t digest = DIGEST_START;
    for (int i = 0; i < JOB_OUTPUTS; i++) {
        int64_t bytes;
        (void)job_buffer(j, job_outputs[i], &bytes);
        uint64_t sum = cuda->sums[i] ? *cuda->sums[i] : digest_sum(NULL, 0);
        digest = digest_join(digest, sum, (size_t)bytes);
    }
    return digest;
}

// True if the case is verified. The judge's work is then enqueued behind the plan without a wait.
static bool is_judged(const struct job *j)
{
    return j->c->verify != VERIFY_OFF;
}

static enum status cuda_execute(struct engine *e, struct job *j, struct error *error)
{
    struct cuda *cuda = self(e);
    uint64_t start_ns = clock_now_ns();
    enum status status = cuda_executor_start(cuda->executor, &cuda->execution, error);
    j->report->timings.launch_ns = clock_now_ns() - start_ns;
    if (status == STATUS_OK && !is_judged(j)) {
        digest_start(cuda, j);
        status = work_wait(cuda, j, error);
    }
    if (status == STATUS_OK && !is_judged(j))
        status = windows_trim(cuda, error);
    cuda->broken = status != STATUS_OK;
    return status;
}

// ---- the verdict ----

static struct verification_cuda verification_of(struct cuda *cuda, const struct job *j)
{
    cuda->swap_staged = (struct swap_staged){
        .queue = attention_cuda_queue(cuda->backend),
        .over = {j->control, j->progress, j->number << 24 | REPORT_REFERENCE << 16}};
    cuda->swap = (struct swap_nccl){attention_cuda_queue(cuda->backend), cuda->transport};
    struct verification_cuda v = {
        .c = j->c,
        .rank = j->rank,
        .spans = {j->spans[SIDE_Q], j->spans[SIDE_KV]},
        .span_count = {j->span_count[SIDE_Q], j->span_count[SIDE_KV]},
        .results = job_results(j),
        .queue = attention_cuda_queue(cuda->backend),
        .host = j->arena,
        .device = &cuda->arena,
        .swap = cuda->executor ? swap_nccl(&cuda->swap) : swap_staged(&cuda->swap_staged),
    };
    memcpy(v.given, cuda->given, sizeof(v.given));
    return v;
}

static enum status verify_timings(const struct cuda *cuda, struct timings *timings,
                                  struct error *error)
{
    float reference_ms = 0, compare_ms = 0;
    cudaError_t result = cudaEventElapsedTime(&reference_ms, cuda->times.list[cuda->verify_begin],
                                              cuda->reference_end);
    if (result == cudaSuccess)
        result = cudaEventElapsedTime(&compare_ms, cuda->reference_end, cuda->compare_end);
    timings->reference_ns = (uint64_t)((double)reference_ms * 1e6);
    timings->compare_ns = (uint64_t)((double)compare_ms * 1e6);
    return result == cudaSuccess ? STATUS_OK : cuda_failed(result, "timings", error);
}

static enum status verify_start(struct cuda *cuda, struct job *j, struct verify_cuda **x,
                                struct error *error)
{
    struct verification_cuda v = verification_of(cuda, j);
    digest_start(cuda, j);
    cudaError_t result = events_record(&cuda->times, cuda->compute, &cuda->verify_begin);
    if (result != cudaSuccess)
        return cuda_failed(result, "an event", error);
    return verify_cuda_start(&v, cuda->reference_end, cuda->compare_end, x, error);
}

static enum status cuda_wait(struct engine *e, bool look, struct error *error)
{
    struct cuda *cuda = self(e);
    cudaError_t result = look ? cudaStreamQuery(cuda->compute) : cudaDeviceSynchronize();
    cuda->broken = result != cudaSuccess && result != cudaErrorNotReady;
    return cuda->broken ? cuda_failed(result, "the device", error) : STATUS_OK;
}

// Computes the digest of a guest's results that are not judged.
static enum status digest_make(struct cuda *cuda, struct job *j, struct error *error)
{
    digest_start(cuda, j);
    enum status status = work_wait(cuda, j, error);
    cuda->broken = status != STATUS_OK;
    return status;
}

static enum status cuda_verify(struct engine *e, struct job *j, struct error *error)
{
    struct cuda *cuda = self(e);
    struct verify_cuda *x = NULL;
    if (!is_judged(j)) { // execute() has computed the digest sums, except in a guest
        if (!cuda->executor && digest_make(cuda, j, error) != STATUS_OK)
            return error->status;
        j->report->digest = digest_finish(cuda, j);
        return STATUS_OK;
    }
    enum status status = verify_start(cuda, j, &x, error);
    if (status == STATUS_OK)
        status = work_wait(cuda, j, error);
    if (status == STATUS_OK)
        status = verify_timings(cuda, &j->report->timings, error);
    if (status == STATUS_OK)
        status = windows_trim(cuda, error);
    cuda->broken = status != STATUS_OK;
    if (status != STATUS_OK)
        return status;
    job_phase(j, REPORT_COMPARE);
    verify_cuda_finish(x, j->report);
    job_drop_absent(j);
    j->report->digest = digest_finish(cuda, j);
    struct rank_results results = job_results(j);
    job_diagnose(j, results_read_device, &(struct evidence_host){j->c, &results},
                 verify_cuda_statistics, x);
    return STATUS_OK;
}

static bool cuda_read(struct engine *e, const void *from, size_t bytes, void *to)
{
    (void)e;
    return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

// ---- life ----

static void *cuda_queue_of(struct engine *e)
{
    return attention_cuda_queue(self(e)->backend);
}

static void cuda_release(struct engine *e)
{
    if (!self(e)->broken)
        device_arena_trim(&self(e)->arena);
}

static void cuda_destroy(struct engine *e)
{
    struct cuda *cuda = self(e);
    // After a failed call nothing is freed: the process ends, and the driver frees its resources.
    if (cuda->broken)
        return;
    cuda_executor_destroy(cuda->executor);
    window_fini(&cuda->window);
    if (cuda->peer)
        cuda->peer->ops->destroy(cuda->peer);
    if (cuda->library)
        cuda->library->ops->destroy(cuda->library);
    if (cuda->transport)
        cuda->transport->ops->destroy(cuda->transport);
    events_fini(&cuda->times);
    if (cuda->reference_end)
        (void)cudaEventDestroy(cuda->reference_end);
    if (cuda->compare_end)
        (void)cudaEventDestroy(cuda->compare_end);
    device_arena_fini(&cuda->arena);
    if (cuda->comm)
        (void)cudaStreamDestroy(cuda->comm);
    providers_fini(&cuda->providers);
    if (cuda->backend)
        backend_cuda.destroy(cuda->backend);
    free(cuda);
}

static const struct engine_ops cuda_ops = {
    .name = "cuda",
    .verify_work = VERIFY_CUDA_WORK,
    .reserve = cuda_reserve,
    .admit = cuda_admit,
    .spare = cuda_spare,
    .join = cuda_join,
    .prepare = cuda_prepare,
    .execute = cuda_execute,
    .wait = cuda_wait,
    .verify = cuda_verify,
    .read = cuda_read,
    .plan_reserve = cuda_plan_reserve,
    .plan_execute = cuda_plan_execute,
    .plan_finish = cuda_plan_finish,
    .collective_judge = &collective_judge_cuda,
    .linear_tools = &linear_tools_cuda,
    .queue = cuda_queue_of,
    .release = cuda_release,
    .destroy = cuda_destroy,
};

static enum status number_parse(const char *text, const char *name, long max, long *value,
                                struct error *error)
{
    char *end;
    errno = 0;
    long parsed = strtol(text, &end, 10);
    if (errno || end == text || *end || parsed < 0 || parsed > max)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is \"%s\", not a number from 0 to %ld",
                         name, text, max);
    *value = parsed;
    return STATUS_OK;
}

// NCCL refuses two ranks on one device of a host, so all but the first rank of a device get the
// name of another host.
static enum status host_name_set(const struct device_place *place, struct error *error)
{
    const char *given = getenv("NCCL_HOSTID");
    char host[HOST_NAME_MAX + 1] = "", name[2 * sizeof(host)];
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(name, sizeof(name), "%s-%d", given ? given : host, place->before);
    if (place->before > 0 && setenv("NCCL_HOSTID", name, 1) != 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the environment");
    return STATUS_OK;
}

// Chooses the device and creates its context (by cudaMemGetInfo()). `keep_mib`: memory that an idle
// rank may keep; negative: a quarter of the device's memory, shared by the ranks of the device.
static enum status device_open(struct cuda *cuda, struct transport *control, long device,
                               long keep_mib, struct error *error)
{
    size_t free_bytes, total_bytes;
    struct device_place place;
    enum status status = device_choose(control, (int)device, &place, error);
    if (status == STATUS_OK)
        status = host_name_set(&place, error);
    if (status != STATUS_OK)
        return status;
    cudaError_t result = cudaSetDevice(place.index);
    if (result == cudaSuccess)
        result = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (result != cudaSuccess)
        return error_set(error, STATUS_UNAVAILABLE, "device %ld cannot be used: %s (%s)", device,
                         cudaGetErrorString(result), cudaGetErrorName(result));
    cuda->alone = place.ranks == 1;
    device_arena_init(&cuda->arena, keep_mib < 0 ? total_bytes / 4 / (size_t)place.ranks
                                                 : (size_t)keep_mib << 20);
    return STATUS_OK;
}

// Creates the streams. The exchange stream has the highest priority, because other ranks wait for
// it.
static enum status streams_open(struct cuda *cuda, struct error *error)
{
    int least, greatest;
    cuda->compute = attention_cuda_stream(cuda->backend);
    cudaError_t result = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    if (result == cudaSuccess)
        result = cudaStreamCreateWithPriority(&cuda->comm, cudaStreamNonBlocking, greatest);
    if (result == cudaSuccess)
        result = cudaEventCreate(&cuda->reference_end);
    if (result == cudaSuccess)
        result = cudaEventCreate(&cuda->compare_end);
    return result == cudaSuccess ? STATUS_OK : cuda_failed(result, "a stream", error);
}

static enum status cuda_init(struct cuda *cuda, const struct engine_setup *setup,
                             struct error *error)
{
    long device, keep_mib = -1;
    enum status status =
        number_parse(setup->arguments[0], "the device", DEVICES_MAX - 1, &device, error);
    if (status == STATUS_OK && setup->arguments[1])
        status =
            number_parse(setup->arguments[1], "the memory to keep", INT32_MAX, &keep_mib, error);
    if (status == STATUS_OK)
        status = device_open(cuda, setup->control, device, keep_mib, error);
    if (status == STATUS_OK)
        status = backend_cuda.create(&cuda->backend, error);
    if (status == STATUS_OK) {
        own_provider_init(&cuda->own, &backend_cuda, cuda->backend);
        providers_init(&cuda->providers, &backend_cuda, cuda->backend);
    }
    if (status == STATUS_OK)
        status = streams_open(cuda, error);
    return status == STATUS_OK && !setup->guest ? cuda_exchanges_open(cuda, setup, error) : status;
}

static enum status cuda_create(const struct engine_setup *setup, struct engine **engine,
                               struct error *error)
{
    struct cuda *cuda = calloc(1, sizeof(*cuda));
    if (!cuda)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a backend");
    cuda->base.ops = &cuda_ops;
    events_init(&cuda->times, true);
    nccl_set(setup->control);
    queues_set(setup->control);
    enum status status = cuda_init(cuda, setup, error);
    if (status != STATUS_OK) {
        cuda_destroy(&cuda->base);
        return status;
    }
    *engine = &cuda->base;
    return STATUS_OK;
}

const struct engine_kind engine_cuda = {
    .program = "cpattn-rank-cuda",
    .arguments = " DEVICE [KEEP_MIB]",
    .argument_min = 1,
    .argument_max = 2,
    .create = cuda_create,
};
