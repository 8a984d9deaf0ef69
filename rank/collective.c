// SPDX-License-Identifier: Apache-2.0
// A collective on one rank: its plan, its memory with guards around it, execution, verdict.
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/fault.h"
#include "common/guard.h"
#include "judge/collective_diagnosis.h"
#include "rank/kind.h"
#include "rank/untouched.h"

extern const struct rank_kind rank_kind_collective;

struct work {
    const struct rank_task *task;
    const struct collective *c;
    struct engine *engine;
    const struct collective_judge *judge;
    void *queue; // for the judge
    int rank;
    struct plan *plan;
    struct plan_run run;
    char *send, *receive; // first elements; NULL: the rank has none
    void *tensors[COLLECTIVE_TENSORS];
};

static size_t receive_bytes(const struct work *w)
{
    return (size_t)(collective_receive_count(w->c, w->rank) *
                    collective_element_bytes(w->c->dtype));
}

// ---- memory ----

static bool is_scratch(const struct plan_buffer *buffer)
{
    return buffer->role == BUFFER_SCRATCH;
}

// Sets w->send and w->receive if the buffer at `data` holds them.
static void ends_find(struct work *w, const struct plan_buffer *buffer, char *data)
{
    struct collective_shared shared = collective_shared(w->c, w->rank);
    int element = collective_element_bytes(w->c->dtype);
    if (buffer->role == BUFFER_SEND)
        w->send = data;
    if (buffer->role == BUFFER_RECEIVE)
        w->receive = data;
    if (buffer->role == BUFFER_SHARED && collective_send_count(w->c, w->rank) > 0)
        w->send = data + shared.send * element;
    if (buffer->role == BUFFER_SHARED && collective_receive_count(w->c, w->rank) > 0)
        w->receive = data + shared.receive * element;
}

// Fills all buffers with the guard byte (scratch with 0xff), then the elements of the send.
static enum status memory_fill(struct work *w, struct error *error)
{
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < w->plan->buffer_count && status == STATUS_OK; i++) {
        const struct plan_buffer *b = &w->plan->buffers[i];
        char *data = w->run.buffers[i];
        status = w->judge->set(w->queue, data, is_scratch(b) ? 0xff : GUARD_BYTE, (size_t)b->bytes,
                               error);
        ends_find(w, b, data);
    }
    if (w->send && status == STATUS_OK)
        status = w->judge->fill(w->queue, w->c, w->rank, w->send, error);
    return status;
}

// ---- the verdict ----

// Looks for the mistake in some elements of a wrong receive.
static enum status diagnose(const struct work *w, const struct figures *result, struct error *error)
{
    struct collective_view v;
    struct collective_sample sample;
    size_t bytes = (size_t)collective_element_bytes(w->c->dtype);
    enum status status = STATUS_OK;
    collective_view_set(&v, w->c, w->rank);
    collective_sample_choose(&v, result->first_bad.position, &sample);
    for (int i = 0; i < sample.count && status == STATUS_OK; i++) {
        uint64_t element = 0;
        status = w->judge->read(w->queue, w->receive + (size_t)sample.index[i] * bytes, bytes,
                                &element, error);
        sample.got[i] = collective_element(&v, &element, 0);
    }
    if (status == STATUS_OK)
        collective_diagnose(w->c, w->rank, &sample, GUARD_BYTE, result,
                            &w->task->report->diagnosis);
    return status;
}

// Judges the receive and every byte outside of it that must be unchanged: the send and the guards.
// In place, elements of the send that lie in the receive are not compared.
static enum status judge(const struct work *w, struct error *error)
{
    struct rank_report *report = w->task->report;
    const struct untouched untouched = {
        .plan = w->plan, .buffers = w->run.buffers, .memory = w->judge, .queue = w->queue};
    struct figures *result = report_figures_add(report, "receive");
    struct figures *send = report_figures_add(report, "send");
    enum status status = w->judge->receive(w->queue, w->c, w->rank, w->receive, result, error);
    if (status == STATUS_OK)
        status = w->judge->send(w->queue, w->c, w->rank, w->send,
                                w->c->in_place ? w->receive : NULL, send, error);
    if (status == STATUS_OK && result->broken)
        status = diagnose(w, result, error);
    report->pass = !result->broken && !send->broken;
    return status == STATUS_OK ? untouched_judge(&untouched, report, error) : status;
}

// ---- work ----

// Spare bytes of the engine: on a device the digest of an unaligned receive needs a copy.
static int64_t spare_bytes(const struct work *w)
{
    int64_t offset = (int64_t)w->c->offset * collective_element_bytes(w->c->dtype);
    bool aligned = offset % 8 == 0 && !w->c->in_place;
    return w->queue && !aligned ? (int64_t)receive_bytes(w) : 0;
}

static enum status verdict_make(struct work *w, struct error *error)
{
    struct timings *timings = &w->task->report->timings;
    FAULT(REFERENCE);
    rank_task_at(w->task, REPORT_COMPARE, 0);
    uint64_t start_ns = clock_now_ns();
    enum status status = w->c->verify ? judge(w, error) : STATUS_OK;
    if (status == STATUS_OK)
        status = w->judge->digest(w->queue, w->receive, receive_bytes(w), w->run.spare,
                                  &w->task->report->digest, error);
    timings->compare_ns = clock_now_ns() - start_ns;
    return status;
}

static enum status job_do(void *context, struct error *error)
{
    struct work *w = context;
    struct timings *timings = &w->task->report->timings;
    rank_task_at(w->task, REPORT_INPUTS, 0);
    FAULT(INPUTS);
    uint64_t start_ns = clock_now_ns();
    enum status status = memory_fill(w, error);
    timings->inputs_ns = clock_now_ns() - start_ns;
    w->run.library_send = w->send;
    w->run.library_receive = w->receive;
    w->tensors[COLLECTIVE_SEND] = w->send;
    w->tensors[COLLECTIVE_RECEIVE] = w->receive;
    w->run.tensors = w->tensors;
    rank_task_at(w->task, REPORT_FORWARD, 0);
    if (status == STATUS_OK)
        status = w->engine->ops->plan_execute(w->engine, &w->run, error);
    if (status == STATUS_OK && w->task->report->refusal.status == STATUS_OK)
        status = verdict_make(w, error);
    return status == STATUS_OK ? w->engine->ops->plan_finish(w->engine, error) : status;
}

// Refuses a job that these ranks cannot run. The result is the same on all ranks of a pool.
static bool refused(const struct rank_task *task)
{
    const struct collective *c = task->spec;
    const struct engine_ops *ops = task->session->engine->ops;
    if (!ops->plan_reserve) {
        rank_task_refuse(task, STATUS_UNIMPLEMENTED, "these ranks run no collectives");
        return true;
    }
    if (c->algorithm != ALGORITHM_NCCL || ops->queue || rank_task_is_guest(task))
        return false;
    rank_task_refuse(task, STATUS_UNIMPLEMENTED,
                     "algorithm is nccl, which GPUs have; these ranks have the backend cpu");
    return true;
}

static enum status run(const struct rank_task *task, struct error *error)
{
    struct engine *engine = task->session->engine;
    struct work w = {.task = task,
                     .c = task->spec,
                     .engine = engine,
                     .judge = engine->ops->collective_judge,
                     .queue = engine->ops->queue ? engine->ops->queue(engine) : NULL,
                     .rank = task->session->rank};
    if (refused(task))
        return STATUS_OK;
    rank_task_at(task, REPORT_PLAN, 0);
    uint64_t start_ns = clock_now_ns();
    enum status status = collective_plan(w.c, w.rank, &w.plan, error);
    task->report->timings.plan_ns = clock_now_ns() - start_ns;
    if (status == STATUS_OK) {
        if (rank_task_is_guest(task))
            plan_keep_tensors(w.plan);
        task->report->operations = w.plan->op_count;
        bool calls_nccl = w.c->algorithm == ALGORITHM_NCCL && !rank_task_is_guest(task);
        w.run = (struct plan_run){.plan = w.plan,
                                  .iterations = w.c->iterations,
                                  .library = calls_nccl ? w.c : NULL,
                                  .spare_bytes = spare_bytes(&w)};
        status = rank_task_plan(task, &w.run, job_do, &w, error);
    }
    if (engine->ops->release)
        engine->ops->release(engine);
    plan_destroy(w.plan);
    return status;
}

const struct rank_kind rank_kind_collective = {.kind = &job_kind_collective, .run = run};
