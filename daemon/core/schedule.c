// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/schedule.h"

#include <limits.h>

#include "daemon/core/line.h"
#include "daemon/core/pool.h"
#include "daemon/core/state.h"
#include "daemon/core/twin.h"

// One look at the waiting jobs, in the order in which they go.
struct pass {
    struct devices reserved; // that an earlier job waits for
    bool room;               // no earlier job waits for room to start its pool
    bool memory;             // nor for memory: all that is given back is kept for it
    struct devices yielding; // that pools which were killed leave to their twins
};

// Those that were started to stand by hold no devices: see size_awaited().
static int size_starting(const struct core *core, const struct size *size)
{
    int starting = 0;
    if (size->modes[MODE_STARTING] == 0)
        return 0;
    for (const struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
        starting += pool->mode == MODE_STARTING && pool->leased &&
                    !devices_meet(&core->unusable, &pool->place);
    return starting;
}

static void pass_begin(struct core *core, struct pass *pass)
{
    core->pass++;
    pass->reserved = pass->yielding = (struct devices){{0}};
    LIST_FOREACH (node, &core->modes[MODE_IDLE])
        if (twin_hands_over(pool_entry(node)))
            devices_add(&pass->yielding, &pool_entry(node)->place, &core->devices_all);
    pass->room = true;
    pass->memory = true;
    LIST_FOREACH (node, &core->sizes_waiting) {
        struct size *size = size_entry(node);
        size->closed = false;
        size->starting = size_starting(core, size);
    }
}

// Whether one more job of the user may be taken in this pass. Devices are kept for no more of them
// than may run at a time.
static bool account_may_take(const struct core *core, struct account *account)
{
    int most = core->users.limits.running_max;
    if (account->pass != core->pass)
        account->taken = account->running;
    account->pass = core->pass;
    return (most == 0 || account->taken < most) &&
           users_wait_ns(&core->users, account, core->now_ns) == 0;
}

// The next job of the line in this pass, or NULL.
static struct job *line_next(const struct core *core, struct line *line)
{
    if (!account_may_take(core, line->account))
        return NULL;
    if (line->pass != core->pass)
        line->next = line->jobs.next;
    line->pass = core->pass;
    return line->next == &line->jobs ? NULL : mate_entry(line->next);
}

// Of the size, the one that goes first among the next ones and `first`, which may be NULL.
static struct job *size_first(const struct core *core, struct size *size, struct job *first)
{
    LIST_FOREACH (node, &size->lines) {
        struct job *job = line_next(core, line_entry(node));
        if (job && (!first || line_goes_before(core, job, first)))
            first = job;
    }
    return first;
}

// The job that goes first among the next ones, or NULL; steps over it.
static struct job *pass_take(struct core *core)
{
    struct job *first = NULL;
    LIST_FOREACH (node, &core->sizes_waiting)
        if (!size_entry(node)->closed)
            first = size_first(core, size_entry(node), first);
    if (!first)
        return NULL;
    first->line->next = first->mate.next;
    first->account->taken++;
    return first;
}

// Sooner or later: not claimed by an earlier job, and all its devices are of use.
static bool pool_may_be_had(const struct core *core, const struct pass *pass,
                            const struct pool *pool)
{
    return !devices_meet(&core->unusable, &pool->place) &&
           !devices_meet(&pass->reserved, &pool->place);
}

// The same, and nobody works on its devices.
static bool pool_is_free(const struct core *core, const struct pass *pass, const struct pool *pool)
{
    return !devices_meet(&core->devices_leased, &pool->place) && pool_may_be_had(core, pass, pool);
}

// The same, for one that is up: what its twin leaves to it is free.
static bool pool_can_run(const struct core *core, const struct pass *pass, const struct pool *pool)
{
    return (twin_hands_over(pool) || !devices_meet(&core->devices_leased, &pool->place)) &&
           pool_may_be_had(core, pass, pool);
}

static struct pool *size_idle(const struct core *core, const struct pass *pass,
                              const struct size *size)
{
    if (size->modes[MODE_IDLE] == 0)
        return NULL;
    for (struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
        if (pool->mode == MODE_IDLE && twin_leads(pool) && pool_can_run(core, pass, pool))
            return pool;
    return NULL;
}

// One that was started to stand by, and has lost its twin meanwhile.
static struct pool *size_awaited(const struct core *core, const struct pass *pass,
                                 const struct size *size)
{
    if (size->modes[MODE_STARTING] == 0)
        return NULL;
    for (struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
        if (pool->mode == MODE_STARTING && !pool->leased && twin_leads(pool) &&
            pool_is_free(core, pass, pool))
            return pool;
    return NULL;
}

// The one that has failed least: a broken device must not keep a job from the others.
static struct pool *size_cold(const struct core *core, const struct pass *pass,
                              const struct size *size)
{
    struct pool *best = NULL;
    for (struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
        if (pool->mode == MODE_COLD && twin_leads(pool) && !twin_rests(pool) &&
            pool_is_free(core, pass, pool) &&
            (!best || pool->failures.count < best->failures.count))
            best = pool;
    return best;
}

// The one to wait for: fewest devices still at work. These never become more, because later jobs
// keep off them; so the wait ends when the jobs that run now have ended.
static struct pool *size_nearest(const struct core *core, const struct pass *pass,
                                 const struct size *size)
{
    struct pool *best = NULL;
    int best_busy = INT_MAX;
    for (struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++) {
        int busy = devices_shared(&core->devices_leased, &pool->place);
        if (twin_leads(pool) && !twin_rests(pool) && pool_may_be_had(core, pass, pool) &&
            busy < best_busy) {
            best = pool;
            best_busy = busy;
        }
    }
    return best;
}

// ---- room for the ranks of one more pool ----------------------------------------------------

// What is taken. Ranks that are stuck take only their pool's crew: nobody can make them go.
struct room {
    int ranks, pools;
};

static struct room room_taken(const struct core *core)
{
    return (struct room){.ranks = core->ranks_alive - core->ranks_stuck,
                         .pools = bits_in(core->crews_used) - core->pools_stuck};
}

// A pool that is larger than the limit may be alone.
static bool room_for(const struct core *core, const struct room *taken, const struct pool *pool)
{
    return taken->pools + core->pools_stuck < POOLS_MAX &&
           (taken->pools == 0 || taken->ranks + pool->world_size <= core->config.ranks_max);
}

// What will be taken when the ranks that were killed are reaped.
static struct room room_after_reaping(struct core *core)
{
    struct room taken = room_taken(core);
    LIST_FOREACH (node, &core->modes[MODE_STOPPING]) {
        taken.ranks -= bits_in(pool_entry(node)->alive);
        taken.pools--;
    }
    return taken;
}

static void room_stop(struct core *core, struct room *taken, struct pool *pool)
{
    taken->ranks -= pool->world_size;
    taken->pools--;
    pool_handle(
        core, pool,
        &(struct pool_event){.kind = POOL_STOP, .rank = -1, .why = "makes room for another pool"});
}

// Stops those on the list that stand by until there will be room.
static void room_stop_spares(struct core *core, struct room *taken, const struct pool *pool,
                             struct list *list)
{
    LIST_FOREACH (node, list) {
        if (room_for(core, taken, pool))
            break;
        if (twin_stands_by(pool_entry(node)))
            room_stop(core, taken, pool_entry(node));
    }
}

// Whether there is room now. If not, stops what stands by, and then idle pools, those that were
// used longest ago first, until there will be; but none that an earlier job has reserved.
static bool room_make(struct core *core, const struct pool *pool)
{
    struct room taken = room_taken(core);
    if (room_for(core, &taken, pool))
        return true;
    taken = room_after_reaping(core);
    room_stop_spares(core, &taken, pool, &core->modes[MODE_STARTING]);
    room_stop_spares(core, &taken, pool, &core->modes[MODE_IDLE]);
    LIST_FOREACH (node, &core->modes[MODE_IDLE]) {
        struct pool *idle = pool_entry(node);
        if (room_for(core, &taken, pool))
            break;
        if (idle->pass != core->pass)
            room_stop(core, &taken, idle);
    }
    return false;
}

// What will be taken when those that wait have a pool each of their size.
static struct room room_after_starts(const struct core *core)
{
    struct room taken = room_taken(core);
    LIST_FOREACH (node, &core->sizes_waiting) {
        const int *modes = size_entry(node)->modes;
        if (modes[MODE_STARTING] + modes[MODE_IDLE] + modes[MODE_RUNNING] + modes[MODE_SUSPECT])
            continue;
        taken.ranks += size_entry(node)->world_size;
        taken.pools++;
    }
    return taken;
}

// ---- dispatch -------------------------------------------------------------------------------

// Starts the pool for the job if there is room; otherwise later jobs must not take the room.
static bool dispatch_start(struct core *core, struct pass *pass, struct pool *pool)
{
    if (!pass->room)
        return false;
    pass->room = room_make(core, pool);
    if (pass->room)
        pool_handle(core, pool, &(struct pool_event){.kind = POOL_START, .rank = -1});
    return pass->room;
}

// Beside the jobs that run. Alone it may have what it was admitted with.
static bool memory_fits(const struct core *core, const struct pass *pass, const struct job *job)
{
    uint64_t most = core->config.memory_max;
    return pass->memory && (most == 0 || core->memory == 0 || core->memory + job->memory <= most);
}

static void pool_reserve(const struct core *core, struct pass *pass, struct pool *pool)
{
    devices_add(&pass->reserved, &pool->place, &core->devices_all);
    pool->pass = core->pass;
}

// Runs the job, or sees to it that it can run later.
static void dispatch(struct core *core, struct pass *pass, struct job *job)
{
    struct size *size = job->size;
    struct pool *pool = size_idle(core, pass, size);
    if (pool && memory_fits(core, pass, job)) {
        pool_handle(core, pool, &(struct pool_event){.kind = POOL_RUN, .rank = -1, .job = job});
        return;
    }
    if (pool) {
        pass->memory = false;
        pool_reserve(core, pass, pool);
        return;
    }
    if (size->starting > 0) {
        size->starting--;
        return;
    }
    pool = size_awaited(core, pass, size);
    if (!pool) {
        pool = size_cold(core, pass, size);
        if (pool && dispatch_start(core, pass, pool))
            return;
    }
    pool = pool ? pool : size_nearest(core, pass, size);
    if (pool) {
        pool_reserve(core, pass, pool);
    } else {
        // What this job cannot have, the later ones of its size cannot have either.
        size->closed = true;
        job->account->taken--;
    }
}

// ---- spares ---------------------------------------------------------------------------------

// Starts the twins of those that are up in the mode, while there is room that nobody else needs.
static void start_spares(struct core *core, struct room *taken, enum pool_mode mode)
{
    LIST_FOREACH (node, &core->modes[mode]) {
        struct pool *twin = pool_entry(node)->twin;
        if (!twin || twin->mode != MODE_COLD || devices_meet(&core->unusable, &twin->place) ||
            !room_for(core, taken, twin))
            continue;
        taken->ranks += twin->world_size;
        taken->pools++;
        pool_handle(core, twin,
                    &(struct pool_event){.kind = POOL_START, .rank = -1, .spare = true});
    }
}

// Whether there is a device that a job may have.
static bool pass_goes_on(const struct core *core, const struct pass *pass)
{
    for (int host = 0; host < core->config.host_count; host++) {
        uint64_t leased = core->devices_leased.on[host] & ~pass->yielding.on[host];
        if ((leased | core->unusable.on[host] | pass->reserved.on[host]) !=
            core->devices_all.on[host])
            return true;
    }
    return false;
}

// To wake for whoever has to wait for no other reason.
static void wake_for_users(struct core *core)
{
    uint64_t next_ns = TIMERS_NEVER;
    if (core->users.limits.time_ns > 0)
        LIST_FOREACH (node, &core->sizes_waiting)
            LIST_FOREACH (line, &size_entry(node)->lines) {
                const struct account *account = line_entry(line)->account;
                uint64_t wait_ns = users_wait_ns(&core->users, account, core->now_ns);
                uint64_t at_ns = time_after(core->now_ns, wait_ns);
                if (wait_ns > 0 && at_ns < next_ns)
                    next_ns = at_ns;
            }
    timers_set(&core->timers, timer_of_users(core), next_ns);
}

void schedule_pass(struct core *core)
{
    struct pass pass;
    pass_begin(core, &pass);
    for (struct job *job; pass_goes_on(core, &pass) && (job = pass_take(core));)
        dispatch(core, &pass, job);
    wake_for_users(core);
    if (!core->config.spares || core->draining || !pass.room)
        return;
    struct room taken = room_after_starts(core);
    start_spares(core, &taken, MODE_RUNNING);
    start_spares(core, &taken, MODE_SUSPECT);
    start_spares(core, &taken, MODE_IDLE);
}
