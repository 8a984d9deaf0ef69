// SPDX-License-Identifier: Apache-2.0
// A collective on one rank: its plan, its memory with guards around it, execution, verdict.
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/fault.h"
#include "judge/collective.h"
#include "judge/digest.h"
#include "kernels/backend.h"
#include "rank/executor.h"
#include "rank/kind.h"

extern const struct rank_kind rank_kind_collective;

// Bytes on either side of what a collective may write, and what they hold.
#define GUARD_BYTES 256
#define GUARD       0xa5

struct work {
    const struct rank_task *task;
    const struct collective *c;
    int rank;
    struct plan *plan;
    void **buffers;          // of the plan
    char *send, *receive;    // first elements; NULL where a rank has none
    struct region_of_bytes { // what was taken for a buffer with its guards
        char *base, *data;
        int64_t bytes, data_bytes;
    } guarded[2];
    int guarded_count;
};

// ---- memory ----

static int64_t offset_bytes(const struct collective *c)
{
    return (int64_t)c->offset * collective_element_bytes(c->dtype);
}

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
        int64_t around = is_scratch(buffer) ? 0 : 2 * GUARD_BYTES + offset_bytes(w->c);
        status = arena_add(&total, buffer->bytes + around, 1, error);
    }
    return status == STATUS_OK ? arena_reserve(&w->task->session->arena, total, error) : status;
}

static char *guarded_take(struct work *w, int64_t bytes)
{
    struct region_of_bytes *g = &w->guarded[w->guarded_count++];
    g->bytes = bytes + 2 * GUARD_BYTES + offset_bytes(w->c);
    g->base = arena_take(&w->task->session->arena, g->bytes, 1);
    g->data = g->base + GUARD_BYTES + offset_bytes(w->c);
    g->data_bytes = bytes;
    memset(g->base, GUARD, (size_t)g->bytes);
    return g->data;
}

static void memory_take(struct work *w)
{
    struct arena *arena = &w->task->session->arena;
    struct collective_shared shared = collective_shared(w->c, w->rank);
    int element = collective_element_bytes(w->c->dtype);
    w->buffers = arena_take(arena, w->plan->buffer_count, sizeof(*w->buffers));
    for (int32_t i = 0; i < w->plan->buffer_count; i++) {
        const struct plan_buffer *buffer = &w->plan->buffers[i];
        char *data = is_scratch(buffer) ? arena_take(arena, buffer->bytes, 1)
                                        : guarded_take(w, buffer->bytes);
        if (is_scratch(buffer))
            memset(data, 0xff, (size_t)buffer->bytes);
        if (buffer->role == BUFFER_SEND)
            w->send = data;
        if (buffer->role == BUFFER_RECEIVE)
            w->receive = data;
        if (buffer->role == BUFFER_SHARED && collective_send_count(w->c, w->rank) > 0)
            w->send = data + shared.send * element;
        if (buffer->role == BUFFER_SHARED && collective_receive_count(w->c, w->rank) > 0)
            w->receive = data + shared.receive * element;
        w->buffers[i] = data;
    }
    if (w->send)
        collective_fill(w->c, w->rank, w->send);
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
    enum status status = STATUS_OK;
    for (int i = 0; i < w->c->iterations && status == STATUS_OK; i++) {
        once = (struct timings){0};
        status = executor_run(&execution, &once, error);
        sum.forward_ns += once.forward_ns;
        sum.exchange_ns += once.exchange_ns;
        sum.exposed_ns += once.exposed_ns;
    }
    timings->forward_ns = sum.forward_ns / (uint64_t)w->c->iterations;
    timings->exchange_ns = sum.exchange_ns / (uint64_t)w->c->iterations;
    timings->exposed_ns = sum.exposed_ns / (uint64_t)w->c->iterations;
    return status;
}

static int64_t guards_damaged(const struct region_of_bytes *g)
{
    int64_t damaged = 0;
    for (const char *at = g->base; at < g->base + g->bytes; at++)
        damaged += (at < g->data || at >= g->data + g->data_bytes) && (unsigned char)*at != GUARD;
    return damaged;
}

// Every byte outside the result: the send, guards, and what is between. In place, blocks that are
// neither sent nor received do not exist.
static void judge(const struct work *w)
{
    struct rank_report *report = w->task->report;
    struct figures *result = rank_task_figures(w->task, "receive");
    collective_judge(w->c, w->rank, w->receive, result);
    struct figures *send = rank_task_figures(w->task, "send");
    collective_judge_send(w->c, w->rank, w->send, w->c->in_place ? w->receive : NULL, send);
    struct figures *guards = rank_task_figures(w->task, "guards");
    guards->chunk = CHUNK_PADDING;
    for (int i = 0; i < w->guarded_count; i++) {
        guards->elements += w->guarded[i].bytes - w->guarded[i].data_bytes;
        guards->mismatches += guards_damaged(&w->guarded[i]);
    }
    guards->judged = guards->elements;
    guards->broken = guards->mismatches > 0 ? RULE_PADDING : 0;
    report->pass = !result->broken && !send->broken && !guards->broken;
}

static enum status job_do(struct work *w, struct error *error)
{
    struct timings *timings = &w->task->report->timings;
    rank_task_at(w->task, REPORT_INPUTS, 0);
    FAULT(INPUTS);
    uint64_t start_ns = clock_now_ns();
    memory_take(w);
    timings->inputs_ns = clock_now_ns() - start_ns;
    enum status status = execute(w, error);
    if (status != STATUS_OK)
        return status;
    FAULT(REFERENCE);
    rank_task_at(w->task, REPORT_COMPARE, 0);
    start_ns = clock_now_ns();
    if (w->c->verify)
        judge(w);
    size_t bytes =
        (size_t)(collective_receive_count(w->c, w->rank) * collective_element_bytes(w->c->dtype));
    w->task->report->digest = digest_add(DIGEST_START, w->receive, bytes);
    timings->compare_ns = clock_now_ns() - start_ns;
    return STATUS_OK;
}

// The same on all ranks of a pool.
static bool refused(const struct rank_task *task)
{
    struct refusal *refusal = &task->report->refusal;
    const char *engine = task->session->engine->ops->name;
    const struct collective *c = task->spec;
    if (strcmp(engine, "cpu") == 0 && c->algorithm != ALGORITHM_NCCL)
        return false;
    refusal->status = STATUS_UNIMPLEMENTED;
    snprintf(refusal->text, sizeof(refusal->text),
             c->algorithm == ALGORITHM_NCCL
                 ? "algorithm is nccl, which GPUs have; these ranks have the backend %s"
                 : "collectives run with the CPU backend; these ranks have the backend %s",
             engine);
    return true;
}

static enum status run(const struct rank_task *task, struct error *error)
{
    struct work w = {.task = task, .c = task->spec, .rank = task->session->rank};
    if (refused(task))
        return STATUS_OK;
    rank_task_at(task, REPORT_PLAN, 0);
    uint64_t start_ns = clock_now_ns();
    enum status status = collective_plan(w.c, w.rank, &w.plan, error);
    task->report->timings.plan_ns = clock_now_ns() - start_ns;
    if (status == STATUS_OK)
        status = memory_reserve(&w, error);
    if (status == STATUS_OK)
        status = job_do(&w, error);
    plan_destroy(w.plan);
    return status;
}

const struct rank_kind rank_kind_collective = {.kind = &job_kind_collective, .run = run};
