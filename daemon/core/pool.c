// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/pool.h"

#include <assert.h>

#include "daemon/core/failures.h"
#include "daemon/core/hosts.h"
#include "daemon/core/job.h"
#include "daemon/core/pool_view.h"
#include "daemon/core/state.h"
#include "daemon/core/stuck.h"
#include "daemon/core/twin.h"

// If a job waits for an idle pool at its timeout, the timeout is checked again after at least this.
#define IDLE_AGAIN_NS_MIN (UINT64_C(1) * 1000000000)

static const bool pool_moves[MODE_COUNT][MODE_COUNT] = {
    [MODE_COLD] = {[MODE_STARTING] = true},
    [MODE_STARTING] = {[MODE_IDLE] = true, [MODE_STOPPING] = true},
    [MODE_IDLE] = {[MODE_RUNNING] = true, [MODE_STOPPING] = true},
    [MODE_RUNNING] = {[MODE_IDLE] = true, [MODE_SUSPECT] = true, [MODE_STOPPING] = true},
    [MODE_SUSPECT] = {[MODE_STOPPING] = true},
    [MODE_STOPPING] = {[MODE_COLD] = true, [MODE_BACKOFF] = true, [MODE_STUCK] = true},
    [MODE_STUCK] = {[MODE_COLD] = true, [MODE_BACKOFF] = true},
    [MODE_BACKOFF] = {[MODE_COLD] = true},
};

static const enum cause pool_causes[LOSS_COUNT] = {
    [LOSS_EXITED] = CAUSE_RANK_EXITED, [LOSS_KILLED] = CAUSE_RANK_EXITED,
    [LOSS_FAILED] = CAUSE_RANK_FAILED, [LOSS_PEER] = CAUSE_PEER_LOST,
    [LOSS_HOST] = CAUSE_NODE_LOST,
};

void pool_init(struct core *core, int index, struct size *size, int instance, struct place place,
               struct pool *twin)
{
    struct pool *pool = &core->pools[index];
    *pool = (struct pool){
        .mode = MODE_COLD,
        .index = index,
        .size = size,
        .world_size = size->world_size,
        .instance = instance,
        .place = place,
        .twin = twin,
        .crew = -1,
        .suspect = -1,
        .loss = {.rank = -1, .host = -1},
    };
    size->modes[MODE_COLD]++;
    list_init(&pool->node);
    list_push_back(&core->modes[MODE_COLD], &pool->node);
}

// The only function that changes the mode of a pool. Each mode has its own timer.
static void pool_move(struct core *core, struct pool *pool, enum pool_mode mode, uint64_t timer_ns)
{
    assert(pool_moves[pool->mode][mode]);
    pool->size->modes[pool->mode]--;
    pool->size->modes[mode]++;
    list_remove(&pool->node);
    pool->mode = mode;
    list_push_back(&core->modes[mode], &pool->node);
    timers_set(&core->timers, core->config.queue_max + pool->index, timer_ns);
    // The twin leads now, so its idle timeout starts.
    if (mode == MODE_STOPPING && pool->twin && pool->twin->mode == MODE_IDLE)
        pool_restart_idle_timer(core, pool->twin);
}

static void pool_lease(struct core *core, struct pool *pool)
{
    assert(!pool->leased && !devices_meet(&core->devices_leased, &pool->place));
    devices_add(&core->devices_leased, &pool->place, &core->devices_all);
    pool->leased = true;
}

static void pool_release(struct core *core, struct pool *pool)
{
    if (pool->leased)
        devices_remove(&core->devices_leased, &pool->place);
    pool->leased = false;
}

// Takes over the lease of the killed twin, if the twin is not reaped yet.
static void pool_take_over(struct core *core, const struct pool *pool)
{
    if (!twin_hands_over(pool))
        return;
    pool_release(core, pool->twin);
    pool->twin->yields = true;
}

// Releases the pool's lease. If the lease was taken over from the twin and the twin is not reaped
// yet, the twin leases the devices again.
static void pool_hand_back(struct core *core, struct pool *pool)
{
    pool_release(core, pool);
    if (!pool->twin || !pool->twin->yields)
        return;
    pool->twin->yields = false;
    pool_lease(core, pool->twin);
}

// ---- the end of a generation ----------------------------------------------------------------

// All ranks are reaped. Frees the crew number. The pool may start again after failures_pause_ns().
static void pool_reaped(struct core *core, struct pool *pool)
{
    uint64_t pause_ns = failures_pause_ns(core, pool);
    pool_hand_back(core, pool);
    pool->yields = false;
    if (pause_ns > 0)
        pool_move(core, pool, MODE_BACKOFF, time_after(core->now_ns, pause_ns));
    else
        pool_move(core, pool, MODE_COLD, TIMERS_NEVER);
    stuck_count(core);
    if (pool->start_failed)
        failures_refuse_waiting(core, pool->size);
    core->crews[pool->crew] = NULL;
    core->crews_used &= ~bit_of(pool->crew);
    pool->crew = -1;
    pool->start_failed = pool->must_wait = false;
    hosts_deal(core, pool->size);
}

static struct loss loss_by(enum pool_loss kind, int rank)
{
    return (struct loss){.kind = kind, .rank = rank, .host = -1};
}

// Kills all ranks; the pool must have no job. `why` is the reason given if loss is LOSS_NONE.
static void pool_kill(struct core *core, struct pool *pool, enum pool_loss loss, const char *why)
{
    assert(!pool->job);
    struct action kill = pool_action(ACTION_KILL, pool);
    kill.reason = loss == LOSS_NONE ? why : pool_loss_words(loss);
    kill.rank = loss == LOSS_NONE ? -1 : pool->loss.rank;
    kill.host = loss == LOSS_NONE ? -1 : pool->loss.host;
    if (loss != LOSS_NONE)
        kill.end = pool->loss.end;
    pool_move(core, pool, MODE_STOPPING, time_after(core->now_ns, core->config.kill_timeout_ns));
    if (pool->alive)
        actions_push(&core->actions, &kill);
    else
        pool_reaped(core, pool);
}

static void pool_note_loss(struct core *core, struct pool *pool, struct loss loss)
{
    pool->lost_ns = core->now_ns;
    pool->loss = loss;
    pool->deaths++;
}

// Answers the pool's job, if there is one, and kills all ranks.
static void pool_lose(struct core *core, struct pool *pool, struct loss loss)
{
    pool_note_loss(core, pool, loss);
    pool->must_wait = pool->as_spare && !pool->used && loss.kind != LOSS_HOST;
    if (pool->job) {
        struct job_event event = {.kind = JOB_LOSE,
                                  .cause = pool_causes[loss.kind],
                                  .rank = loss.rank,
                                  .no_evidence =
                                      loss.kind == LOSS_KILLED || loss.kind == LOSS_HOST};
        job_handle(core, pool->job, &event);
    }
    pool_kill(core, pool, loss.kind, NULL);
}

static void pool_fail_start(struct core *core, struct pool *pool, struct loss loss)
{
    failures_note(core, pool, loss.kind == LOSS_KILLED ? FAILURE_HALF : FAILURE_WHOLE);
    pool->start_failed = true;
    pool_lose(core, pool, loss);
}

// ---- the cells of the table -----------------------------------------------------------------

typedef void pool_handler(struct core *core, struct pool *pool, const struct pool_event *event);

static void pool_ignore(struct core *core, struct pool *pool, const struct pool_event *event)
{
    (void)core, (void)pool, (void)event;
}

static uint64_t pool_start_until(const struct core *core, const struct pool *pool)
{
    int guest = pool->size->implementation - 1;
    return time_after(core->now_ns, guest < 0 ? core->config.start_timeout_ns
                                              : core->config.guests[guest].start_timeout_ns);
}

static void pool_start(struct core *core, struct pool *pool, const struct pool_event *event)
{
    int crew = __builtin_ctzll(~core->crews_used & mask_of(POOLS_MAX));
    core->crews_used |= bit_of(crew);
    core->crews[crew] = pool;
    pool->crew = crew;
    pool->generation = ++core->generation;
    pool->starts++;
    pool->alive = mask_of(pool->world_size);
    pool->ready = pool->reported = pool->victims = 0;
    pool->started_ns = core->now_ns;
    core->ranks_alive += pool->world_size;
    pool->as_spare = event->spare;
    pool->used = false;
    if (!pool->as_spare)
        pool_lease(core, pool);
    pool_move(core, pool, MODE_STARTING, pool_start_until(core, pool));
    struct action action = pool_action(ACTION_START, pool);
    action.spare = event->spare;
    actions_push(&core->actions, &action);
}

// A pool that stands by does not idle out before its twin.
static uint64_t pool_idle_until(const struct core *core, const struct pool *pool)
{
    uint64_t timeout_ns = core->config.idle_timeout_ns;
    return timeout_ns > 0 && !twin_stands_by(pool) ? time_after(core->now_ns, timeout_ns)
                                                   : TIMERS_NEVER;
}

static void pool_rest(struct core *core, struct pool *pool)
{
    pool_hand_back(core, pool);
    pool_move(core, pool, MODE_IDLE, pool_idle_until(core, pool));
}

void pool_restart_idle_timer(struct core *core, struct pool *pool)
{
    timers_set(&core->timers, core->config.queue_max + pool->index, pool_idle_until(core, pool));
}

static void pool_hear_ready(struct core *core, struct pool *pool, const struct pool_event *event)
{
    if (pool->ready & bit_of(event->rank)) {
        pool_fail_start(core, pool, loss_by(LOSS_FAILED, event->rank));
        return;
    }
    pool->ready |= bit_of(event->rank);
    if (pool->ready != mask_of(pool->world_size))
        return;
    failures_forget(pool);
    pool->ready_ns = core->now_ns;
    pool_rest(core, pool);
}

static void pool_run(struct core *core, struct pool *pool, const struct pool_event *event)
{
    pool_take_over(core, pool);
    pool_lease(core, pool);
    pool_move(core, pool, MODE_RUNNING, TIMERS_NEVER);
    pool->reported = 0;
    pool->victims = 0;
    pool->used = true;
    pool->job = event->job;
    job_handle(core, event->job, &(struct job_event){.kind = JOB_RUN, .pool = pool});
}

static void pool_hear_report(struct core *core, struct pool *pool, const struct pool_event *event)
{
    if (event->number != pool->job->number || pool->reported & bit_of(event->rank)) {
        pool_lose(core, pool, loss_by(LOSS_FAILED, event->rank));
        return;
    }
    pool->reported |= bit_of(event->rank);
    if (pool->reported != mask_of(pool->world_size))
        return;
    pool->jobs++;
    job_handle(core, pool->job, &(struct job_event){.kind = JOB_FINISH});
    pool_rest(core, pool);
}

// A rank has lost a peer. The exit or failure of the peer usually follows. The core waits for that
// event for up to peer_grace_ns, so that the answer can name the cause.
static void pool_hear_peer_lost(struct core *core, struct pool *pool,
                                const struct pool_event *event)
{
    pool->victims |= bit_of(event->rank);
    pool->suspect = event->peer;
    pool_move(core, pool, MODE_SUSPECT, time_after(core->now_ns, core->config.peer_grace_ns));
}

// Another rank has lost a peer. If the suspect itself has reported a lost peer, this peer becomes
// the suspect unless it is a victim, too.
static void pool_hear_more_lost(struct core *core, struct pool *pool,
                                const struct pool_event *event)
{
    (void)core;
    pool->victims |= bit_of(event->rank);
    if (pool->victims & bit_of(pool->suspect) && !(pool->victims & bit_of(event->peer)))
        pool->suspect = event->peer;
}

static void pool_end_suspicion(struct core *core, struct pool *pool, const struct pool_event *event)
{
    (void)event;
    pool_lose(core, pool, loss_by(LOSS_PEER, pool->suspect));
}

static struct loss exit_loss(const struct pool_event *event)
{
    return (struct loss){rank_end_is_from_outside(&event->end) ? LOSS_KILLED : LOSS_EXITED,
                         event->rank, -1, event->end};
}

// The exit of a victim is not the cause. When all ranks have exited, no better cause will come.
static void pool_hear_exit_suspect(struct core *core, struct pool *pool,
                                   const struct pool_event *event)
{
    if (!(pool->victims & bit_of(event->rank)))
        pool_lose(core, pool, exit_loss(event));
    else if (!pool->alive)
        pool_end_suspicion(core, pool, event);
}

// A failure that a victim reports is a consequence of the loss.
static void pool_hear_failed_suspect(struct core *core, struct pool *pool,
                                     const struct pool_event *event)
{
    if (!(pool->victims & bit_of(event->rank)))
        pool_lose(core, pool, loss_by(LOSS_FAILED, event->rank));
}

static void pool_hear_exit(struct core *core, struct pool *pool, const struct pool_event *event)
{
    pool_lose(core, pool, exit_loss(event));
}

static void pool_hear_failed(struct core *core, struct pool *pool, const struct pool_event *event)
{
    pool_lose(core, pool, loss_by(LOSS_FAILED, event->rank));
}

static void pool_hear_lost_idle(struct core *core, struct pool *pool,
                                const struct pool_event *event)
{
    pool_lose(core, pool, loss_by(LOSS_PEER, event->peer));
}

static void pool_exit_starting(struct core *core, struct pool *pool, const struct pool_event *event)
{
    pool_fail_start(core, pool, exit_loss(event));
}

static void pool_fail_starting(struct core *core, struct pool *pool, const struct pool_event *event)
{
    pool_fail_start(core, pool, loss_by(LOSS_FAILED, event->rank));
}

static void pool_lost_starting(struct core *core, struct pool *pool, const struct pool_event *event)
{
    pool_fail_start(core, pool, loss_by(LOSS_PEER, event->peer));
}

static void pool_not_started(struct core *core, struct pool *pool, const struct pool_event *event)
{
    (void)event;
    pool_fail_start(core, pool, loss_by(LOSS_NOT_STARTED, -1));
}

static void pool_start_timeout(struct core *core, struct pool *pool, const struct pool_event *event)
{
    (void)event;
    pool_fail_start(core, pool, loss_by(LOSS_START_TIMEOUT, -1));
}

static void pool_stop(struct core *core, struct pool *pool, const struct pool_event *event)
{
    if (event->loss != LOSS_NONE)
        pool_note_loss(core, pool, loss_by(event->loss, event->rank));
    pool_kill(core, pool, event->loss, event->why);
}

// Stops the pool, unless a job waits for it; then checks again later.
static void pool_idle_timeout(struct core *core, struct pool *pool, const struct pool_event *event)
{
    uint64_t again_ns = core->config.idle_timeout_ns;
    const struct pool_event stop = {.kind = POOL_STOP, .rank = -1, .why = "idle for long"};
    (void)event;
    if (list_empty(&pool->size->queue)) {
        if (pool->twin && twin_stands_by(pool->twin))
            pool_handle(core, pool->twin, &stop);
        pool_stop(core, pool, &stop);
        return;
    }
    if (again_ns < IDLE_AGAIN_NS_MIN)
        again_ns = IDLE_AGAIN_NS_MIN;
    timers_set(&core->timers, core->config.queue_max + pool->index,
               time_after(core->now_ns, again_ns));
}

static void pool_hear_reaped(struct core *core, struct pool *pool, const struct pool_event *event)
{
    (void)event;
    if (!pool->alive)
        pool_reaped(core, pool);
}

static void pool_hear_host_lost(struct core *core, struct pool *pool,
                                const struct pool_event *event)
{
    pool_lose(core, pool, (struct loss){.kind = LOSS_HOST, .rank = -1, .host = event->host});
}

// SIGKILL has not ended some ranks. They may end at any time, or never.
static void pool_get_stuck(struct core *core, struct pool *pool, const struct pool_event *event)
{
    (void)event;
    pool_release(core, pool);
    pool->yields = false;
    pool_move(core, pool, MODE_STUCK, TIMERS_NEVER);
    stuck_count(core);
    struct action action = pool_action(ACTION_STUCK, pool);
    struct place place = stuck_place(core, pool);
    action.rank = __builtin_ctzll(pool->alive);
    action.hosts = place.hosts;
    action.devices = place.slots;
    actions_push(&core->actions, &action);
    LIST_FOREACH (node, &core->sizes_waiting)
        stuck_refuse_waiting(core, size_entry(node));
}

static void pool_hear_unstuck(struct core *core, struct pool *pool, const struct pool_event *event)
{
    pool_hear_reaped(core, pool, event);
    stuck_count(core);
}

static void pool_thaw(struct core *core, struct pool *pool, const struct pool_event *event)
{
    (void)event;
    pool_move(core, pool, MODE_COLD, TIMERS_NEVER);
    hosts_deal(core, pool->size);
}

// A message that is not allowed in the mode breaks the protocol: the rank has failed. Events with
// an empty cell cannot occur: a pool without ranks gets no events of ranks, and START, RUN and STOP
// are sent only in modes that accept them.
static pool_handler *const pool_table[MODE_COUNT][POOL_EVENTS] = {
    [MODE_COLD] = {[POOL_START] = pool_start},
    [MODE_STARTING] =
        {
            [POOL_STOP] = pool_stop,
            [POOL_READY] = pool_hear_ready,
            [POOL_REPORTED] = pool_fail_starting,
            [POOL_FAILED] = pool_fail_starting,
            [POOL_PEER_LOST] = pool_lost_starting,
            [POOL_ENDING] = pool_exit_starting,
            [POOL_EXITED] = pool_exit_starting,
            [POOL_GONE] = pool_not_started,
            [POOL_HOST_LOST] = pool_hear_host_lost,
            [POOL_TIMER] = pool_start_timeout,
        },
    [MODE_IDLE] =
        {
            [POOL_RUN] = pool_run,
            [POOL_STOP] = pool_stop,
            [POOL_READY] = pool_hear_failed,
            [POOL_REPORTED] = pool_hear_failed,
            [POOL_FAILED] = pool_hear_failed,
            [POOL_PEER_LOST] = pool_hear_lost_idle,
            [POOL_ENDING] = pool_hear_exit,
            [POOL_EXITED] = pool_hear_exit,
            [POOL_HOST_LOST] = pool_hear_host_lost,
            [POOL_TIMER] = pool_idle_timeout,
        },
    [MODE_RUNNING] =
        {
            [POOL_STOP] = pool_stop,
            [POOL_READY] = pool_hear_failed,
            [POOL_REPORTED] = pool_hear_report,
            [POOL_FAILED] = pool_hear_failed,
            [POOL_PEER_LOST] = pool_hear_peer_lost,
            [POOL_ENDING] = pool_hear_exit,
            [POOL_EXITED] = pool_hear_exit,
            [POOL_HOST_LOST] = pool_hear_host_lost,
        },
    [MODE_SUSPECT] =
        {
            [POOL_STOP] = pool_stop,
            [POOL_READY] = pool_hear_failed_suspect,
            [POOL_REPORTED] = pool_ignore,
            [POOL_FAILED] = pool_hear_failed_suspect,
            [POOL_PEER_LOST] = pool_hear_more_lost,
            [POOL_ENDING] = pool_hear_exit_suspect,
            [POOL_EXITED] = pool_hear_exit_suspect,
            [POOL_HOST_LOST] = pool_hear_host_lost,
            [POOL_TIMER] = pool_end_suspicion,
        },
    [MODE_STOPPING] =
        {
            [POOL_READY] = pool_ignore,
            [POOL_REPORTED] = pool_ignore,
            [POOL_FAILED] = pool_ignore,
            [POOL_PEER_LOST] = pool_ignore,
            [POOL_ENDING] = pool_ignore,
            [POOL_EXITED] = pool_hear_reaped,
            [POOL_GONE] = pool_hear_reaped,
            [POOL_HOST_LOST] = pool_hear_reaped,
            [POOL_TIMER] = pool_get_stuck,
        },
    [MODE_STUCK] =
        {
            [POOL_READY] = pool_ignore,
            [POOL_REPORTED] = pool_ignore,
            [POOL_FAILED] = pool_ignore,
            [POOL_PEER_LOST] = pool_ignore,
            [POOL_ENDING] = pool_ignore,
            [POOL_EXITED] = pool_hear_unstuck,
            [POOL_GONE] = pool_hear_unstuck,
            [POOL_HOST_LOST] = pool_hear_unstuck,
        },
    [MODE_BACKOFF] = {[POOL_TIMER] = pool_thaw},
};

// Removes ranks that are gone from the masks and counts, in every mode.
static void pool_count_out(struct core *core, struct pool *pool, uint64_t ranks)
{
    assert((pool->alive & ranks) == ranks);
    pool->alive &= ~ranks;
    core->ranks_alive -= bits_in(ranks);
}

void pool_handle(struct core *core, struct pool *pool, const struct pool_event *event)
{
    if (event->kind == POOL_EXITED)
        pool_count_out(core, pool, bit_of(event->rank));
    else if (event->kind == POOL_GONE || event->kind == POOL_HOST_LOST)
        pool_count_out(core, pool, event->ranks);
    pool_handler *handler = pool_table[pool->mode][event->kind];
    assert(handler);
    handler(core, pool, event);
}

void pool_end_job(struct core *core, struct job *job, enum job_event_kind kind)
{
    struct pool *pool = job->pool;
    struct pool_event stop = {.kind = POOL_STOP, .rank = -1};
    job_handle(core, job, &(struct job_event){.kind = kind});
    if (!pool || pool->job)
        return;
    if (kind == JOB_EXPIRE)
        stop.loss = LOSS_DEADLINE;
    else
        stop.why = kind == JOB_CANCEL ? "its job was cancelled" : "the client of its job has gone";
    pool_handle(core, pool, &stop);
}
