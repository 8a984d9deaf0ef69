// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/guard.h"
#include "judge/cpu/verify.h"
#include "judge/digest.h"
#include "judge/linear_view.h"
#include "rank/engine.h"
#include "rank/executor.h"
#include "rank/inputs.h"
#include "rank/judge_host.h"
#include "rank/providers.h"

struct cpu {
    struct engine base;
    const struct backend_ops *ops;
    struct attention_backend *backend;
    struct own_provider own;
    struct providers providers;
    void *scratch; // of the current case, for attention
};

static struct cpu *self(struct engine *e)
{
    return (struct cpu *)e;
}

// ---- memory ----

static enum status buffer_add(size_t *total, const struct plan_buffer *b, struct error *error)
{
    return arena_add(total, b->before + b->bytes + b->after, 1, error);
}

// Takes the memory of a buffer and sets its guard bytes.
static void *buffer_take(struct arena *arena, const struct plan_buffer *b)
{
    char *base = arena_take(arena, b->before + b->bytes + b->after, 1), *data = base + b->before;
    memset(base, GUARD_BYTE, (size_t)b->before);
    memset(data + b->bytes, GUARD_BYTE, (size_t)b->after);
    return data;
}

static enum status cpu_reserve(struct engine *e, struct job *j, size_t *host_bytes,
                               struct error *error)
{
    if (j->c->graph)
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "graph is true, and this backend is cpu, which has no graphs; accepted "
                         "is false there");
    enum status status = providers_choose(&self(e)->providers, &self(e)->own, j, error);
    if (status == STATUS_OK)
        status = arena_add(host_bytes, (int64_t)j->attends->scratch_bytes, 1, error);
    for (int i = 0; i < j->plan->buffer_count && status == STATUS_OK; i++)
        status = buffer_add(host_bytes, &j->plan->buffers[i], error);
    if (status == STATUS_OK)
        status = job_judge_reserve(j, host_bytes, error);
    return status;
}

static void buffers_take(struct cpu *cpu, struct job *j)
{
    cpu->scratch = arena_take(j->arena, (int64_t)j->attends->scratch_bytes, 1);
    for (int i = 0; i < j->plan->buffer_count; i++) {
        const struct plan_buffer *buffer = &j->plan->buffers[i];
        j->buffers[i] = buffer_take(j->arena, buffer);
        if (!job_role_is_filled(buffer->role))
            memset(j->buffers[i], 0xff, (size_t)buffer->bytes);
    }
}

// ---- inputs ----

static void input_fill(const struct job *j, enum input_tensor tensor, enum shard_side side,
                       void *data)
{
    if (data)
        inputs_fill(j->c, tensor, j->rank, j->spans[side], j->span_count[side], data);
}

static enum status cpu_prepare(struct engine *e, struct job *j, struct error *error)
{
    (void)error;
    uint64_t start_ns = clock_now_ns();
    buffers_take(self(e), j);
    char *kv = job_memory(j, BUFFER_INPUT_KV);
    input_fill(j, INPUT_K, SIDE_KV, kv);
    input_fill(j, INPUT_V, SIDE_KV, kv ? kv + job_key_bytes(j) : NULL);
    input_fill(j, INPUT_Q, SIDE_Q, job_memory(j, BUFFER_INPUT_Q));
    input_fill(j, INPUT_DO, SIDE_Q, job_memory(j, BUFFER_INPUT_DO));
    float *sink = job_memory(j, BUFFER_INPUT_SINK);
    if (sink)
        inputs_fill_sink(j->c, sink);
    void *bias = job_memory(j, BUFFER_INPUT_BIAS);
    if (bias)
        inputs_fill_bias(j->c, j->rank, j->spans_of_others, bias);
    j->report->timings.inputs_ns = clock_now_ns() - start_ns;
    return STATUS_OK;
}

// ---- plans of jobs that are not attention ----

static enum status cpu_plan_reserve(struct engine *e, struct plan_run *run, bool *lacks,
                                    struct error *error)
{
    size_t total = 0;
    (void)e;
    *lacks = false;
    enum status status = arena_add(&total, run->plan->buffer_count, sizeof(*run->buffers), error);
    for (int32_t i = 0; i < run->plan->buffer_count && status == STATUS_OK; i++)
        status = buffer_add(&total, &run->plan->buffers[i], error);
    if (status == STATUS_OK)
        status = arena_add(&total, run->spare_bytes, 1, error);
    if (status == STATUS_OK)
        status = arena_reserve(run->arena, total, error);
    if (status != STATUS_OK)
        return status;
    run->buffers = arena_take(run->arena, run->plan->buffer_count, sizeof(*run->buffers));
    for (int32_t i = 0; i < run->plan->buffer_count; i++)
        run->buffers[i] = buffer_take(run->arena, &run->plan->buffers[i]);
    run->spare = arena_take(run->arena, run->spare_bytes, 1);
    return STATUS_OK;
}

static enum status cpu_plan_execute(struct engine *e, const struct plan_run *run,
                                    struct error *error)
{
    const struct execution execution = {.plan = run->plan,
                                        .buffers = run->buffers,
                                        .ops = self(e)->ops,
                                        .backend = self(e)->backend,
                                        .transport = run->control,
                                        .progress = run->progress,
                                        .job = run->job,
                                        .op_times = run->op_times};
    struct timings sum = {0};
    enum status status = STATUS_OK;
    if (run->library)
        return error_set(error, STATUS_UNIMPLEMENTED, "the CPU has no library of collectives");
    for (int i = 0; i < run->iterations && status == STATUS_OK; i++) {
        struct timings once = {0};
        status = executor_run(&execution, &once, error);
        sum.forward_ns += once.forward_ns;
        sum.backward_ns += once.backward_ns;
        sum.exchange_ns += once.exchange_ns;
        sum.exposed_ns += once.exposed_ns;
    }
    run->timings->forward_ns = sum.forward_ns / (uint64_t)run->iterations;
    run->timings->backward_ns = sum.backward_ns / (uint64_t)run->iterations;
    run->timings->exchange_ns = sum.exchange_ns / (uint64_t)run->iterations;
    run->timings->exposed_ns = sum.exposed_ns / (uint64_t)run->iterations;
    return status;
}

static enum status cpu_plan_finish(struct engine *e, struct error *error)
{
    (void)e, (void)error;
    return STATUS_OK;
}

// ---- attention ----

static enum status cpu_execute(struct engine *e, struct job *j, struct error *error)
{
    struct execution execution = {
        .plan = j->plan,
        .buffers = j->buffers,
        .ops = self(e)->ops,
        .backend = self(e)->backend,
        .transport = j->control,
        .progress = j->progress,
        .job = j->number,
        .attends = j->attends,
        .scratch = self(e)->scratch,
        .op_times = j->c->operation_times ? &j->report->op_times : NULL,
    };
    return executor_run(&execution, &j->report->timings, error);
}

static uint64_t outputs_digest(const struct job *j)
{
    uint64_t digest = DIGEST_START;
    for (int i = 0; i < JOB_OUTPUTS; i++) {
        int64_t bytes;
        const void *data = job_buffer(j, job_outputs[i], &bytes);
        digest = digest_add(digest, data, (size_t)bytes);
    }
    return digest;
}

static void digest_fill(const struct job *j)
{
    job_phase(j, REPORT_COMPARE);
    uint64_t start_ns = clock_now_ns();
    j->report->digest = outputs_digest(j);
    j->report->timings.compare_ns += clock_now_ns() - start_ns;
}

static enum status cpu_verify(struct engine *e, struct job *j, struct error *error)
{
    (void)e;
    struct rank_results results = job_results(j);
    enum status status = j->c->verify == VERIFY_OFF ? STATUS_OK : job_judge(j, &results, error);
    if (status == STATUS_OK)
        digest_fill(j);
    return status;
}

// ---- life ----

static void cpu_release(struct engine *e)
{
    (void)e; // all its memory is in the job's arena
}

static void cpu_destroy(struct engine *e)
{
    providers_fini(&self(e)->providers);
    self(e)->ops->destroy(self(e)->backend);
    free(e);
}

static const struct engine_ops cpu_ops = {
    .name = "cpu",
    .verify_work = VERIFY_WORK,
    .reserve = cpu_reserve,
    .prepare = cpu_prepare,
    .execute = cpu_execute,
    .verify = cpu_verify,
    .plan_reserve = cpu_plan_reserve,
    .plan_execute = cpu_plan_execute,
    .plan_finish = cpu_plan_finish,
    .collective_judge = &collective_judge_host,
    .linear_tools = &linear_tools_host,
    .release = cpu_release,
    .destroy = cpu_destroy,
};

static enum status cpu_create(const struct engine_setup *setup, struct engine **engine,
                              struct error *error)
{
    (void)setup;
    struct cpu *cpu = calloc(1, sizeof(*cpu));
    if (!cpu)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a backend");
    cpu->base.ops = &cpu_ops;
    cpu->ops = &backend_cpu;
    enum status status = cpu->ops->create(&cpu->backend, error);
    if (status != STATUS_OK) {
        free(cpu);
        return status;
    }
    own_provider_init(&cpu->own, cpu->ops, cpu->backend);
    providers_init(&cpu->providers, cpu->ops, cpu->backend);
    *engine = &cpu->base;
    return STATUS_OK;
}

const struct engine_kind engine_cpu = {
    .program = "cpattn-rank", .arguments = "", .create = cpu_create};
