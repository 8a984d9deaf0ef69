// SPDX-License-Identifier: Apache-2.0
// Linear layers on one rank: plan, memory with guard bytes around the tensors, execution, verdict.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/fault.h"
#include "judge/digest.h"
#include "judge/linear.h"
#include "judge/linear_view.h"
#include "rank/kind.h"
#include "rank/untouched.h"

extern const struct rank_kind rank_kind_linear;

// The number of the exchange of digests, which is not part of the plan.
#define COMPARE_EXCHANGE (REPORT_COMPARE << 16 | 1)

struct work {
    const struct rank_task *task;
    const struct linear *l;
    struct engine *engine;
    int rank;
    struct plan *plan;
    struct plan_run run;
    struct untouched untouched;
    void *queue;                      // for the judge; see struct linear_tools
    char *places[LINEAR_TENSORS];     // in the engine's memory; NULL: empty
    uint64_t digests[LINEAR_TENSORS]; // of results
    void *copy;                       // host copy of a result in device memory, owned; or NULL
};

static int64_t bytes_of(const struct work *w, int tensor)
{
    return linear_bytes(w->l, w->rank, (enum linear_tensor)tensor);
}

// ---- memory ----

// Sets all buffers to 0xff (NaN), fills the inputs, and waits for the device.
static enum status memory_fill(struct work *w, struct error *error)
{
    const struct engine_ops *ops = w->engine->ops;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < w->plan->buffer_count && status == STATUS_OK; i++) {
        const struct plan_buffer *b = &w->plan->buffers[i];
        char *data = w->run.buffers[i];
        status = ops->collective_judge->set(w->queue, data, 0xff, (size_t)b->bytes, error);
        if (b->role != BUFFER_SCRATCH)
            w->places[b->role - BUFFER_LINEAR] = data;
    }
    for (int t = 0; t < LINEAR_Y && status == STATUS_OK; t++)
        if (w->places[t])
            status = ops->linear_tools->fill(w->queue, w->l, w->rank, (enum linear_tensor)t,
                                             w->places[t], error);
    w->untouched = (struct untouched){.plan = w->plan,
                                      .buffers = w->run.buffers,
                                      .memory = ops->collective_judge,
                                      .queue = w->queue};
    if (status == STATUS_OK && w->l->verify)
        status = untouched_begin(&w->untouched, error);
    return status == STATUS_OK && ops->wait ? ops->wait(w->engine, false, error) : status;
}

// Sets *data to a result in host memory: the result itself, or the copy w->copy.
static enum status result_read(struct work *w, enum linear_tensor tensor, const void **data,
                               struct error *error)
{
    const struct engine_ops *ops = w->engine->ops;
    size_t bytes = (size_t)bytes_of(w, (int)tensor);
    *data = w->places[tensor];
    if (!ops->read || !w->places[tensor])
        return STATUS_OK;
    *data = w->copy = malloc(bytes);
    if (!w->copy)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a result of a layer");
    return ops->read(w->engine, w->places[tensor], bytes, w->copy)
               ? STATUS_OK
               : error_set(error, STATUS_INTERNAL, "a result could not be read");
}

// ---- the verdict ----

// Names a result that differs from that of rank 0 in the diagnosis, unless it has a text already.
static void unlike_tell(const struct work *w, enum linear_tensor t)
{
    struct diagnosis *d = &w->task->report->diagnosis;
    if (d->text[0])
        return;
    snprintf(d->text, sizeof(d->text), "%s differs from that of rank 0",
             linear_tensor_name(w->l, t));
    snprintf(d->name, sizeof(d->name), "same");
    d->explained = 1;
}

// Exchanges digests and compares the results that must have the same bits on all ranks with those
// of rank 0.
static enum status judge_same(const struct work *w, struct error *error)
{
    uint64_t digests[WORLD_SIZE_MAX][LINEAR_TENSORS] = {{0}}, *own = digests[w->rank];
    struct message messages[WORLD_SIZE_MAX];
    int count = 0, size = w->l->world_size;
    struct figures *same = report_figures_add(w->task->report, "same");
    for (int t = LINEAR_Y; t < LINEAR_TENSORS; t++)
        if (linear_is_replicated(w->l, (enum linear_tensor)t) && w->places[t]) {
            own[t] = w->digests[t];
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
        if (own[t] != digests[0][t])
            unlike_tell(w, (enum linear_tensor)t);
    }
    same->judged = same->elements;
    return status;
}

// Searches for the mistake if a result of this rank is wrong.
static enum status diagnose(struct work *w, const struct figures figures[LINEAR_TENSORS],
                            struct error *error)
{
    struct diagnosis *d = &w->task->report->diagnosis;
    const void *tensors[LINEAR_TENSORS] = {NULL};
    enum linear_tensor tensor = linear_broken(figures);
    if (tensor == LINEAR_TENSORS)
        return STATUS_OK;
    enum status status = result_read(w, tensor, &tensors[tensor], error);
    if (status == STATUS_OK)
        status = linear_diagnose(w->l, w->rank, tensors, figures, d->text, &d->explained, &tensor,
                                 error);
    if (status == STATUS_OK && d->text[0])
        snprintf(d->name, sizeof(d->name), "%s", linear_tensor_name(w->l, tensor));
    return status;
}

static enum status judge(struct work *w, struct error *error)
{
    struct rank_report *report = w->task->report;
    struct figures figures[LINEAR_TENSORS];
    for (int t = 0; t < LINEAR_TENSORS; t++)
        figures[t] = (struct figures){.first_bad = {.position = -1}, .worst_row = {.position = -1}};
    enum status status = linear_judge_where(w->engine->ops->linear_tools, w->queue, w->l, w->rank,
                                            (const void *const *)w->places, figures, error);
    if (status != STATUS_OK)
        return status;
    for (int t = LINEAR_Y; t < LINEAR_TENSORS; t++) {
        if (bytes_of(w, t) == 0)
            continue;
        struct figures *f =
            report_figures_add(w->task->report, linear_tensor_name(w->l, (enum linear_tensor)t));
        memcpy(figures[t].name, f->name, sizeof(f->name));
        *f = figures[t];
    }
    status = diagnose(w, figures, error);
    if (status == STATUS_OK)
        status = judge_same(w, error);
    report->pass = true;
    for (int i = 0; i < report->figures_count; i++)
        report->pass = report->pass && report->figures[i].broken == 0;
    return status == STATUS_OK ? untouched_judge(&w->untouched, report, error) : status;
}

// ---- work ----

// Computes the digest of each result, and the report's digest of all of them.
static enum status digests_make(struct work *w, struct error *error)
{
    uint64_t *all = &w->task->report->digest;
    enum status status = STATUS_OK;
    *all = DIGEST_START;
    for (int t = LINEAR_Y; t < LINEAR_TENSORS && status == STATUS_OK; t++) {
        if (!w->places[t])
            continue;
        status = w->engine->ops->collective_judge->digest(
            w->queue, w->places[t], (size_t)bytes_of(w, t), NULL, &w->digests[t], error);
        *all = digest_add(*all, &w->digests[t], sizeof(w->digests[t]));
    }
    return status;
}

static enum status verdict_make(struct work *w, struct error *error)
{
    struct rank_report *report = w->task->report;
    FAULT(REFERENCE);
    rank_task_at(w->task, REPORT_REFERENCE, 0);
    uint64_t start_ns = clock_now_ns();
    enum status status = digests_make(w, error);
    if (status == STATUS_OK && w->l->verify)
        status = judge(w, error);
    report->timings.reference_ns = clock_now_ns() - start_ns;
    free(w->copy);
    return status;
}

static enum status job_do(void *context, struct error *error)
{
    struct work *w = context;
    struct rank_report *report = w->task->report;
    rank_task_at(w->task, REPORT_INPUTS, 0);
    FAULT(INPUTS);
    uint64_t start_ns = clock_now_ns();
    enum status status = memory_fill(w, error);
    report->timings.inputs_ns = clock_now_ns() - start_ns;
    report->flops = linear_flops(w->l, w->rank);
    rank_task_at(w->task, REPORT_FORWARD, 0);
    if (status == STATUS_OK) // times must not include the filling of inputs on other ranks
        status = session_barrier(w->task->session, error);
    w->run.tensors = (void *const *)w->places;
    if (status == STATUS_OK)
        status = w->engine->ops->plan_execute(w->engine, &w->run, error);
    if (status == STATUS_OK && report->refusal.status == STATUS_OK)
        status = verdict_make(w, error);
    return status == STATUS_OK ? w->engine->ops->plan_finish(w->engine, error) : status;
}

static enum status run(const struct rank_task *task, struct error *error)
{
    struct engine *engine = task->session->engine;
    struct work w = {.task = task,
                     .l = task->spec,
                     .engine = engine,
                     .rank = task->session->rank,
                     .queue = engine->ops->queue ? engine->ops->queue(engine) : NULL};
    if (!engine->ops->plan_reserve) { // the same on all ranks of a pool
        rank_task_refuse(task, STATUS_UNIMPLEMENTED, "these ranks run no linear layers");
        return STATUS_OK;
    }
    rank_task_at(task, REPORT_PLAN, 0);
    uint64_t start_ns = clock_now_ns();
    enum status status = linear_plan(w.l, w.rank, &w.plan, error);
    task->report->timings.plan_ns = clock_now_ns() - start_ns;
    if (status == STATUS_OK) {
        if (rank_task_is_guest(task))
            plan_keep_tensors(w.plan);
        task->report->operations = w.plan->op_count;
        w.run = (struct plan_run){.plan = w.plan, .iterations = w.l->iterations};
        status = rank_task_plan(task, &w.run, job_do, &w, error);
    }
    if (engine->ops->release)
        engine->ops->release(engine);
    plan_destroy(w.plan);
    return status;
}

const struct rank_kind rank_kind_linear = {.kind = &job_kind_linear, .run = run};
