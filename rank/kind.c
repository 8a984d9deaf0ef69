// SPDX-License-Identifier: Apache-2.0
#include "rank/kind.h"

#include <stdio.h>

#include "common/plural.h"
#include "rank/swap.h"

// ---- attention ----

static enum status attention_run(const struct rank_task *task, struct error *error)
{
    return session_run(task->session, task->spec, task->number, task->segments, task->report,
                       error);
}

const struct rank_kind rank_kind_attention = {.kind = &job_kind_attention, .run = attention_run};

// ---- running a job ----

static const struct rank_kind *kind_of(const struct job_spec *spec)
{
    for (const struct rank_kind *const *kind = rank_kinds; *kind; kind++)
        if ((*kind)->kind == spec->kind)
            return *kind;
    return NULL;
}

static enum status task_admit(const struct session *s, const struct job_spec *spec,
                              struct error *error)
{
    if (s->out_of_step)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "rank %d aborted an earlier job and is out of step with its peers",
                         s->rank);
    enum status status = spec->kind->check(spec->bytes, error);
    int world_size = status == STATUS_OK ? job_spec_needs(spec).world_size : 0;
    if (status == STATUS_OK && world_size != s->world_size)
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "a job with world_size %d was sent to a pool of %d rank%s", world_size,
                           s->world_size, plural(s->world_size));
    return status;
}

enum status rank_kind_run(struct session *s, const struct job_spec *spec, uint64_t number,
                          const struct segments *segments, struct rank_report *report,
                          struct error *error)
{
    const struct rank_kind *kind = kind_of(spec);
    struct rank_report result = {.rank = s->rank};
    const struct rank_task task = {.session = s,
                                   .kind = spec->kind,
                                   .spec = spec->bytes,
                                   .number = number,
                                   .segments = segments,
                                   .report = &result};
    if (!kind)
        return error_set(error, STATUS_UNIMPLEMENTED, "no rank runs jobs '%s'", spec->kind->name);
    enum status status = STATUS_OK;
    if (kind != &rank_kind_attention) // a session checks its cases itself
        status = task_admit(s, spec, error);
    if (status == STATUS_OK)
        status = kind->run(&task, error);
    arena_trim(&s->arena);
    if (status != STATUS_OK) {
        s->out_of_step = true;
        return status;
    }
    rank_task_at(&task, REPORT_IDLE, 0);
    *report = result;
    return STATUS_OK;
}

// ---- for the code of a kind ----

void rank_task_at(const struct rank_task *task, enum report_phase phase, int step)
{
    progress_store(task->session->progress, (struct progress_view){.job = (uint32_t)task->number,
                                                                   .phase = phase,
                                                                   .step = step,
                                                                   .waiting_for = -1});
}

enum status rank_task_exchange(const struct rank_task *task, int number,
                               const struct message *messages, int count, struct error *error)
{
    struct session *s = task->session;
    struct transport_swap over = {.transport = s->transport,
                                  .progress = s->progress,
                                  .tag = task->number << 24 | (uint64_t)number};
    struct swap swap = transport_swap(&over);
    enum status status = swap.run(swap.context, messages, count, error);
    if (status == STATUS_OK) {
        struct progress_view view = progress_load(s->progress);
        view.waiting_for = -1;
        progress_store(s->progress, view);
    }
    return status;
}

void rank_task_refuse(const struct rank_task *task, enum status status, const char *text)
{
    task->report->refusal.status = (int32_t)status;
    snprintf(task->report->refusal.text, sizeof(task->report->refusal.text), "%s", text);
}

bool rank_task_is_guest(const struct rank_task *task)
{
    return task->session->engine->ops->brings_execution;
}

enum status rank_task_plan(const struct rank_task *task, struct plan_run *run,
                           enum status (*work)(void *context, struct error *error), void *context,
                           struct error *error)
{
    struct session *s = task->session;
    struct error reason = {.text = ""};
    bool lacks = false;
    run->job = task->number;
    run->arena = &s->arena;
    run->control = s->transport;
    run->progress = s->progress;
    run->timings = &task->report->timings;
    run->op_times = run->plan->c.operation_times ? &task->report->op_times : NULL;
    run->refusal = &task->report->refusal;
    run->kind = task->kind;
    run->spec = task->spec;
    enum status status = s->engine->ops->plan_reserve(s->engine, run, &lacks, &reason);
    if (status != STATUS_OK) {
        *error = reason;
        return status;
    }
    if (!lacks)
        return work(context, error);
    rank_task_refuse(task, reason.text[0] ? STATUS_RESOURCE_EXHAUSTED : STATUS_ABORTED,
                     reason.text);
    return STATUS_OK;
}
