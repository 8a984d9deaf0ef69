// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/job.h"

#include <assert.h>

#include "daemon/core/hosts.h"
#include "daemon/core/line.h"
#include "daemon/core/pool_view.h"
#include "daemon/core/request.h"
#include "daemon/core/state.h"
#include "daemon/core/twin.h"

static const bool job_moves[JOB_STATES][JOB_STATES] = {
    [JOB_FREE] = {[JOB_QUEUED] = true},
    [JOB_QUEUED] = {[JOB_RUNNING] = true, [JOB_FREE] = true},
    [JOB_RUNNING] = {[JOB_FREE] = true},
};

static const enum status job_statuses[] = {
    [CAUSE_NONE] = STATUS_OK,
    [CAUSE_RANK_EXITED] = STATUS_ABORTED,
    [CAUSE_RANK_FAILED] = STATUS_INTERNAL,
    [CAUSE_PEER_LOST] = STATUS_ABORTED,
    [CAUSE_DEADLINE_QUEUED] = STATUS_DEADLINE_EXCEEDED,
    [CAUSE_DEADLINE_STARTING] = STATUS_DEADLINE_EXCEEDED,
    [CAUSE_DEADLINE_RUNNING] = STATUS_DEADLINE_EXCEEDED,
    [CAUSE_START_FAILED] = STATUS_UNAVAILABLE,
    [CAUSE_CANCELLED] = STATUS_CANCELLED,
    [CAUSE_POISON] = STATUS_FAILED_PRECONDITION,
    [CAUSE_STUCK] = STATUS_UNAVAILABLE,
    [CAUSE_NODE_LOST] = STATUS_ABORTED,
};

static struct list *job_list(struct core *core, const struct job *job)
{
    switch (job->state) {
    case JOB_QUEUED:
        return &job->size->queue;
    case JOB_RUNNING:
        return &core->jobs_running;
    default:
        return &core->jobs_free;
    }
}

// The only function that changes the state of a job.
static void job_move(struct core *core, struct job *job, enum job_state state)
{
    struct size *size = job->size;
    assert(job_moves[job->state][state]);
    core->memory -= job->state == JOB_RUNNING ? job->memory : 0;
    core->memory += state == JOB_RUNNING ? job->memory : 0;
    size->cost_ns -= job->state == JOB_QUEUED ? job->cost_ns : 0;
    size->cost_ns += state == JOB_QUEUED ? job->cost_ns : 0;
    core->job_counts[job->state]--;
    core->job_counts[state]++;
    list_remove(&job->node);
    if (job->state == JOB_QUEUED)
        line_leave(core, job);
    if (core->pinned == job)
        core->pinned = NULL;
    job->state = state;
    // The slot that was freed last is used next: its memory is in the processor's cache.
    if (state == JOB_FREE)
        list_push_front(&core->jobs_free, &job->node);
    else
        list_push_back(job_list(core, job), &job->node);
    if (state == JOB_QUEUED)
        line_join(core, job);
    if (list_empty(&size->queue))
        list_remove(&size->node);
    else if (list_empty(&size->node))
        list_push_back(&core->sizes_waiting, &size->node);
}

void job_init(struct core *core, int slot)
{
    struct job *job = &core->jobs[slot];
    job->slot = slot;
    job->state = JOB_FREE;
    core->job_counts[JOB_FREE]++;
    list_init(&job->node);
    list_init(&job->mate);
    list_push_back(&core->jobs_free, &job->node);
}

struct job *job_admit(struct core *core, const struct core_request *request)
{
    struct job *job = job_entry(list_first(&core->jobs_free));
    job->number = ++core->number;
    job->account = users_queue(&core->users, request->user);
    job->abandoned = job->clients_gone = false;
    job->cancel_on_disconnect = request->cancel_on_disconnect;
    job->size = hosts_size(core, request);
    job->any_nodes = request->nodes == 0 && request->ranks_per_node == 0;
    job->case_hash = request->case_hash;
    job->cost_ns = request->cost_ns;
    job->memory = request->memory;
    job->admitted_ns = core->now_ns;
    job->deadline_ns = time_after(core->now_ns, request->timeout_ns);
    job->run_timeout_ns = request->run_timeout_ns;
    job->patience_ns = request->patience_ns;
    job->run_ns = 0;
    job->start_ns = 0;
    job->pool = NULL;
    job_move(core, job, JOB_QUEUED);
    ids_add(&core->ids, job->slot, &request->id,
            &(struct ids_claim){request->case_hash, request->user});
    timers_set(&core->timers, job->slot, job->deadline_ns);
    return job;
}

// The part of the time since the job's admission in which the pool was starting.
static uint64_t job_start_ns(const struct core *core, const struct job *job,
                             const struct pool *pool)
{
    uint64_t begin_ns = pool->started_ns > job->admitted_ns ? pool->started_ns : job->admitted_ns;
    uint64_t end_ns = pool->mode == MODE_STARTING ? core->now_ns : pool->ready_ns;
    return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

// Answers the job and frees its slot. The answer is about `pool`, which may be NULL.
static void job_answer(struct core *core, struct job *job, const struct pool *pool,
                       enum cause cause, int rank)
{
    struct action answer = pool_action(ACTION_ANSWER, pool);
    struct account *account = job->account;
    bool was_running = job->state == JOB_RUNNING;
    answer.implementation = job->size->implementation;
    answer.world_size = job->size->world_size;
    answer.slot = job->slot;
    answer.job = job->number;
    answer.status = job_statuses[cause];
    answer.cause = cause;
    answer.rank = rank;
    if (cause == CAUSE_STUCK) {
        struct core_seat seat = hosts_seat(core, pool, rank);
        answer.hosts = bit_of(seat.host);
        answer.devices = bit_of(seat.device);
    }
    answer.host = cause == CAUSE_NODE_LOST ? pool->loss.host : -1;
    if (cause == CAUSE_DEADLINE_QUEUED) {
        line_before(core, job, &answer.own_before);
        answer.own_before += account->running;
        answer.limit = users_limit(&core->users, account, core->now_ns);
    }
    answer.clients_gone = job->clients_gone;
    answer.total_ns = core->now_ns - job->admitted_ns;
    answer.run_ns = job->state == JOB_RUNNING ? core->now_ns - job->run_ns : 0;
    answer.start_ns = job->start_ns;
    answer.queue_ns = answer.total_ns - answer.run_ns - answer.start_ns;
    if (job->pool)
        job->pool->job = NULL;
    job->pool = NULL;
    timers_clear(&core->timers, job->slot);
    if (job->abandoned)
        ids_forget(&core->ids, job->slot);
    else
        answer.answer_index = ids_answer(&core->ids, job->slot);
    job_move(core, job, JOB_FREE);
    users_leave(&core->users, account, core->now_ns, was_running);
    actions_push(&core->actions, &answer);
}

// Returns the starting pool that this job waits for: the n-th job of its size waits for the n-th
// starting pool. A pool between two start attempts counts as starting. NULL: the job does not wait
// for a start.
static struct pool *job_awaited(struct core *core, struct job *job)
{
    struct size *size = job->size;
    int own, before = line_before(core, job, &own);
    for (int i = 0; i < size->pool_count; i++) {
        struct pool *pool = &size->pools[i];
        bool again =
            pool->mode == MODE_BACKOFF || (pool->mode == MODE_STOPPING && pool->start_failed);
        bool starting =
            (pool->mode == MODE_STARTING && twin_leads(pool)) || (again && !pool->as_spare);
        if (!starting || devices_meet(&core->unusable, &pool->place))
            continue;
        if (before-- == 0)
            return pool;
    }
    return NULL;
}

// ---- the table ------------------------------------------------------------------------------

typedef void job_handler(struct core *core, struct job *job, const struct job_event *event);

// Shortens the deadline to run_timeout_ns from now. The limit on the run does not depend on the
// time in the queue.
static void job_limit(struct core *core, struct job *job)
{
    uint64_t limit_ns = time_after(core->now_ns, job->run_timeout_ns);
    if (job->run_timeout_ns == 0 || limit_ns >= job->deadline_ns)
        return;
    job->deadline_ns = limit_ns;
    timers_set(&core->timers, job->slot, job->deadline_ns);
}

static void job_run(struct core *core, struct job *job, const struct job_event *event)
{
    job->pool = event->pool;
    job->run_ns = core->now_ns;
    job->start_ns = job_start_ns(core, job, event->pool);
    job_move(core, job, JOB_RUNNING);
    users_run(&core->users, job->account);
    job_limit(core, job);
    struct action run = pool_action(ACTION_RUN, event->pool);
    run.slot = job->slot;
    run.job = job->number;
    run.left_ns = job->deadline_ns - core->now_ns;
    actions_push(&core->actions, &run);
}

static void job_finish(struct core *core, struct job *job, const struct job_event *event)
{
    (void)event;
    poison_acquit(&core->poison, job->case_hash);
    job_answer(core, job, job->pool, CAUSE_NONE, -1);
}

static void job_refuse_poisoned(struct core *core, uint64_t hash)
{
    for (int i = 0; i < core->size_count; i++)
        LIST_FOREACH (node, &core->sizes[i].queue)
            if (job_entry(node)->case_hash == hash)
                job_handle(core, job_entry(node), &(struct job_event){.kind = JOB_REFUSE_POISON});
}

static void job_lose(struct core *core, struct job *job, const struct job_event *event)
{
    uint64_t hash = job->case_hash;
    if (!event->no_evidence)
        poison_convict(&core->poison, core->now_ns, hash);
    job_answer(core, job, job->pool, event->cause, event->rank);
    if (poison_left_ns(&core->poison, core->now_ns, hash) > 0)
        job_refuse_poisoned(core, hash);
}

static void job_expire_queued(struct core *core, struct job *job, const struct job_event *event)
{
    (void)event;
    struct pool *pool = job_awaited(core, job);
    if (pool && pool->mode == MODE_STARTING)
        job->start_ns = job_start_ns(core, job, pool);
    job_answer(core, job, pool, pool ? CAUSE_DEADLINE_STARTING : CAUSE_DEADLINE_QUEUED, -1);
}

static void job_expire_running(struct core *core, struct job *job, const struct job_event *event)
{
    (void)event;
    job_answer(core, job, job->pool, CAUSE_DEADLINE_RUNNING, -1);
}

static void job_cancel_queued(struct core *core, struct job *job, const struct job_event *event)
{
    (void)event;
    job_answer(core, job, NULL, CAUSE_CANCELLED, -1);
}

static void job_cancel_running(struct core *core, struct job *job, const struct job_event *event)
{
    (void)event;
    job_answer(core, job, job->pool, CAUSE_CANCELLED, -1);
}

// The job was not started, so a repetition of the request is a new job.
static void job_abandon_queued(struct core *core, struct job *job, const struct job_event *event)
{
    job->abandoned = job->clients_gone = true;
    job_cancel_queued(core, job, event);
}

static void job_abandon_running(struct core *core, struct job *job, const struct job_event *event)
{
    job->clients_gone = job->cancel_on_disconnect;
    if (job->clients_gone)
        job_cancel_running(core, job, event);
}

static void job_refuse_down(struct core *core, struct job *job, const struct job_event *event)
{
    job_answer(core, job, event->pool, CAUSE_START_FAILED, event->rank);
}

static void job_refuse_poison(struct core *core, struct job *job, const struct job_event *event)
{
    (void)event;
    job_answer(core, job, NULL, CAUSE_POISON, -1);
}

static void job_refuse_stuck(struct core *core, struct job *job, const struct job_event *event)
{
    job_answer(core, job, event->pool, CAUSE_STUCK, event->rank);
}

// Inserts the job in order of admission into the queue and into the line of its user.
static void job_sort_in(struct job *job)
{
    struct list *at = &job->size->queue, *mate = &job->line->jobs;
    list_remove(&job->node);
    list_remove(&job->mate);
    while (at->prev != &job->size->queue && job_entry(at->prev)->number > job->number)
        at = at->prev;
    list_push_back(at, &job->node);
    while (mate->prev != &job->line->jobs && mate_entry(mate->prev)->number > job->number)
        mate = mate->prev;
    list_push_back(mate, &job->mate);
}

static void job_change_size(struct core *core, struct job *job, const struct job_event *event)
{
    struct size *from = job->size;
    list_remove(&job->node);
    line_leave(core, job);
    from->cost_ns -= job->cost_ns;
    if (list_empty(&from->queue))
        list_remove(&from->node);
    job->size = event->size;
    job->size->cost_ns += job->cost_ns;
    list_push_back(&job->size->queue, &job->node);
    line_join(core, job);
    job_sort_in(job);
    if (list_empty(&job->size->node))
        list_push_back(&core->sizes_waiting, &job->size->node);
}

// Events with an empty cell cannot occur in that state.
static job_handler *const job_table[JOB_STATES][JOB_EVENTS] = {
    [JOB_QUEUED] =
        {
            [JOB_RUN] = job_run,
            [JOB_EXPIRE] = job_expire_queued,
            [JOB_CANCEL] = job_cancel_queued,
            [JOB_ABANDON] = job_abandon_queued,
            [JOB_REFUSE_DOWN] = job_refuse_down,
            [JOB_REFUSE_POISON] = job_refuse_poison,
            [JOB_REFUSE_STUCK] = job_refuse_stuck,
            [JOB_MOVE] = job_change_size,
        },
    [JOB_RUNNING] =
        {
            [JOB_FINISH] = job_finish,
            [JOB_LOSE] = job_lose,
            [JOB_EXPIRE] = job_expire_running,
            [JOB_CANCEL] = job_cancel_running,
            [JOB_ABANDON] = job_abandon_running,
        },
};

void job_handle(struct core *core, struct job *job, const struct job_event *event)
{
    job_handler *handler = job_table[job->state][event->kind];
    assert(handler);
    handler(core, job, event);
}
