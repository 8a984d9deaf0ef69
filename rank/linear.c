// SPDX-License-Identifier: Apache-2.0
// Linear layers on one rank: plan, memory with guards around what is no scratch, execution,
// verdict.
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/fault.h"
#include "judge/digest.h"
#include "judge/linear.h"
#include "kernels/backend.h"
#include "rank/executor.h"
#include "rank/kind.h"

extern const struct rank_kind rank_kind_linear;

// Bytes on either side of a tensor, and what they hold.
#define GUARD_BYTES 256
#define GUARD       0xa5

// The exchange of digests, which no plan has.
#define COMPARE_EXCHANGE (REPORT_COMPARE << 16 | 1)

struct work {
    const struct rank_task *task;
    const struct linear *l;
    int rank;
    struct plan *plan;
    void **buffers;                // of the plan
    char *tensors[LINEAR_TENSORS]; // NULL: empty
};

// ---- memory ----

static bool is_scratch(const struct plan_buffer *buffer)
{
    return buffer->role == BUFFER_SCRATCH;
}

static enum status memory_reserve(const struct work *w, struct error *error)
{
    size_t total = 0;
    enum status status = arena_add(&total, w->plan->buffer_count, sizeof(*w->buffers), error);
    for (int32_t i = 0; i < w->plan->buffer_count && status == STATUS_OK; i++) {
        const struct plan_buffer *buffer = &w->plan->buffers[i];
        status =
            arena_add(&total, buffer->bytes + (is_scratch(buffer) ? 0 : 2 * GUARD_BYTES), 1, error);
    }
    return status == STATUS_OK ? arena_reserve(&w->task->session->arena, total, error) : status;
}

static void memory_take(struct work *w)
{
    struct arena *arena = &w->task->session->arena;
    w->buffers = arena_take(arena, w->plan->buffer_count, sizeof(*w->buffers));
    for (int32_t i = 0; i < w->plan->buffer_count; i++) {
        const struct plan_buffer *buffer = &w->plan->buffers[i];
        int guard = is_scratch(buffer) ? 0 : GUARD_BYTES;
        char *base = arena_take(arena, buffer->bytes + 2 * guard, 1);
        memset(base, GUARD, (size_t)guard);
        memset(base + guard, 0xff, (size_t)buffer->bytes);
        memset(base + guard + buffer->bytes, GUARD, (size_t)guard);
        w->buffers[i] = base + guard;
        if (is_scratch(buffer))
            continue;
        enum linear_tensor tensor = (enum linear_tensor)(buffer->role - BUFFER_LINEAR);
        w->tensors[tensor] = base + guard;
        if (tensor < LINEAR_Y)
            linear_fill(w->l, w->rank, tensor, base + guard);
    }
}

static int64_t bytes_of(const struct work *w, int tensor)
{
    return linear_bytes(w->l, w->rank, (enum linear_tensor)tensor);
}

// ---- the verdict ----

static int64_t guards_damaged(const struct work *w, int tensor)
{
    int64_t damaged = 0;
    const char *data = w->tensors[tensor];
    for (int i = 0; i < GUARD_BYTES && data; i++) {
        damaged += (unsigned char)data[-1 - i] != GUARD;
        damaged += (unsigned char)data[bytes_of(w, tensor) + i] != GUARD;
    }
    return damaged;
}

static void judge_guards(const struct work *w)
{
    struct figures *guards = rank_task_figures(w->task, "guards");
    guards->chunk = CHUNK_PADDING;
    for (int t = 0; t < LINEAR_TENSORS; t++) {
        guards->elements += w->tensors[t] ? 2 * GUARD_BYTES : 0;
        guards->mismatches += guards_damaged(w, t);
    }
    guards->judged = guards->elements;
    guards->broken = guards->mismatches > 0 ? RULE_PADDING : 0;
}

// What has to be the same on all ranks, to the last bit: rank 0's is what the others are compared
// with.
static enum status judge_same(const struct work *w, struct error *error)
{
    uint64_t digests[WORLD_SIZE_MAX][LINEAR_TENSORS] = {{0}}, *own = digests[w->rank];
    struct message messages[WORLD_SIZE_MAX];
    int count = 0, size = w->l->world_size;
    struct figures *same = rank_task_figures(w->task, "same");
    for (int t = LINEAR_Y; t < LINEAR_TENSORS; t++)
        if (linear_is_replicated(w->l, (enum linear_tensor)t) && w->tensors[t]) {
            own[t] = digest_add(DIGEST_START, w->tensors[t], (size_t)bytes_of(w, t));
            same->elements++;
        }
    for (int peer = 0; peer < size; peer++)
        if (peer != w->rank)
            messages[count++] = (struct message){.peer = peer,
                                                 .send = own,
                                                 .send_bytes = sizeof(digests[0]),
                                                 .receive = digests[peer],
                                                 .receive_bytes = sizeof(digests[0])};
    enum status status = rank_task_exchange(w->task, COMPARE_EXCHANGE, messages, count, error);
    for (int t = LINEAR_Y; t < LINEAR_TENSORS && status == STATUS_OK; t++) {
        bool differs = false;
        for (int peer = 0; peer < size; peer++)
            differs = differs || digests[peer][t] != digests[0][t];
        if (!linear_is_replicated(w->l, (enum linear_tensor)t) || !differs)
            continue;
        same->mismatches++;
        same->broken = RULE_ELEMENT;
    }
    same->judged = same->elements;
    return status;
}

static enum status diagnose(const struct work *w, const void *const tensors[LINEAR_TENSORS],
                            const struct figures figures[LINEAR_TENSORS], struct error *error)
{
    struct diagnosis *d = &w->task->report->diagnosis;
    enum linear_tensor tensor;
    enum status status =
        linear_diagnose(w->l, w->rank, tensors, figures, d->text, &d->explained, &tensor, error);
    if (d->text[0])
        snprintf(d->name, sizeof(d->name), "%s", linear_tensor_name(w->l, tensor));
    return status;
}

static enum status judge(const struct work *w, struct error *error)
{
    struct rank_report *report = w->task->report;
    struct figures figures[LINEAR_TENSORS];
    const void *const *tensors = (const void *const *)w->tensors;
    for (int t = 0; t < LINEAR_TENSORS; t++)
        figures[t] = (struct figures){.first_bad = {.position = -1}, .worst_row = {.position = -1}};
    enum status status = linear_judge(w->l, w->rank, tensors, figures, error);
    if (status != STATUS_OK)
        return status;
    for (int t = LINEAR_Y; t < LINEAR_TENSORS; t++) {
        if (bytes_of(w, t) == 0)
            continue;
        struct figures *f =
            rank_task_figures(w->task, linear_tensor_name(w->l, (enum linear_tensor)t));
        memcpy(figures[t].name, f->name, sizeof(f->name));
        *f = figures[t];
    }
    if (status == STATUS_OK)
        status = diagnose(w, tensors, figures, error);
    judge_guards(w);
    if (status == STATUS_OK)
        status = judge_same(w, error);
    report->pass = true;
    for (int i = 0; i < report->figures_count; i++)
        report->pass = report->pass && report->figures[i].broken == 0;
    return status;
}

// ---- work ----

static enum status execute(const struct work *w, struct error *error)
{
    const struct session *s = w->task->session;
    const struct execution execution = {.plan = w->plan,
                                        .buffers = w->buffers,
                                        .ops = &backend_cpu,
                                        .transport = s->transport,
                                        .progress = s->progress,
                                        .job = w->task->number};
    struct timings *timings = &w->task->report->timings, once, sum = {0};
    uint64_t iterations = (uint64_t)w->l->iterations;
    enum status status = STATUS_OK;
    for (uint64_t i = 0; i < iterations && status == STATUS_OK; i++) {
        once = (struct timings){0};
        status = executor_run(&execution, &once, error);
        sum.forward_ns += once.forward_ns;
        sum.backward_ns += once.backward_ns;
        sum.exchange_ns += once.exchange_ns;
        sum.exposed_ns += once.exposed_ns;
    }
    timings->forward_ns = sum.forward_ns / iterations;
    timings->backward_ns = sum.backward_ns / iterations;
    timings->exchange_ns = sum.exchange_ns / iterations;
    timings->exposed_ns = sum.exposed_ns / iterations;
    return status;
}

static enum status job_do(struct work *w, struct error *error)
{
    struct rank_report *report = w->task->report;
    rank_task_at(w->task, REPORT_INPUTS, 0);
    FAULT(INPUTS);
    uint64_t start_ns = clock_now_ns();
    memory_take(w);
    report->timings.inputs_ns = clock_now_ns() - start_ns;
    report->flops = linear_flops(w->l, w->rank);
    report->operations = w->plan->op_count;
    enum status status = execute(w, error);
    if (status != STATUS_OK)
        return status;
    FAULT(REFERENCE);
    rank_task_at(w->task, REPORT_REFERENCE, 0);
    start_ns = clock_now_ns();
    if (w->l->verify)
        status = judge(w, error);
    report->digest = DIGEST_START;
    for (int t = LINEAR_Y; t < LINEAR_TENSORS; t++)
        if (w->tensors[t])
            report->digest = digest_add(report->digest, w->tensors[t], (size_t)bytes_of(w, t));
    report->timings.reference_ns = clock_now_ns() - start_ns;
    return status;
}

// The same on all ranks of a pool.
static bool refused(const struct rank_task *task)
{
    struct refusal *refusal = &task->report->refusal;
    const char *engine = task->session->engine->ops->name;
    if (strcmp(engine, "cpu") == 0)
        return false;
    refusal->status = STATUS_UNIMPLEMENTED;
    snprintf(refusal->text, sizeof(refusal->text),
             "linear layers run with the CPU backend; these ranks have the backend %s", engine);
    return true;
}

static enum status run(const struct rank_task *task, struct error *error)
{
    struct work w = {.task = task, .l = task->spec, .rank = task->session->rank};
    if (refused(task))
        return STATUS_OK;
    rank_task_at(task, REPORT_PLAN, 0);
    uint64_t start_ns = clock_now_ns();
    enum status status = linear_plan(w.l, w.rank, &w.plan, error);
    task->report->timings.plan_ns = clock_now_ns() - start_ns;
    if (status == STATUS_OK)
        status = memory_reserve(&w, error);
    if (status == STATUS_OK)
        status = job_do(&w, error);
    plan_destroy(w.plan);
    return status;
}

const struct rank_kind rank_kind_linear = {.kind = &job_kind_linear, .run = run};
