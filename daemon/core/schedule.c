// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/schedule.h"

#include <limits.h>

#include "daemon/core/line.h"
#include "daemon/core/pool.h"
#include "daemon/core/state.h"
#include "daemon/core/twin.h"

// A pass over the waiting jobs in their order.
struct pass {
    struct devices reserved; // for earlier jobs
    bool room;               // no earlier job waits for room to start its pool
    bool memory;             // no earlier job waits for memory; if one does, later jobs may not run
    // Leased by killed pools whose twins may use them, or by pools that no job awaits.
    struct devices yielding;
};

// True if the pool is being started for jobs that have all ended before it was ready.
static bool pool_is_unawaited(const struct pool *pool)
{
    return pool->mode == MODE_STARTING && pool->leased && list_empty(&pool->size->queue);
}

// Number of starting pools with a lease. Pools that were started to stand by have no lease: see
// size_awaited().
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
    LIST_FOREACH (node, &core->modes[MODE_STARTING])
        if (pool_is_unawaited(pool_entry(node)))
            devices_add(&pass->yielding, &pool_entry(node)->place, &core->devices_all);
    pass->room = true;
    pass->memory = true;
    LIST_FOREACH (node, &core->sizes_waiting) {
        struct size *size = size_entry(node);
        size->closed = false;
        size->starting = size_starting(core, size);
    }
}

// True if one more job of the user may run or reserve a pool in this pass. Running jobs and
// reservations together do not exceed the user's limit of running jobs.
static bool account_may_take(const struct core *core, struct account *account)
{
    int most = core->users.limits.running_max;
    if (account->pass != core->pass)
        account->taken = account->running;
    account->pass = core->pass;
    return (most == 0 || account->taken < most) &&
           users_wait_ns(&core->users, account, core->now_ns) == 0;
}

// Returns the next job of the line in this pass, or NULL.
static struct job *line_next(const struct core *core, struct line *line)
{
    if (!account_may_take(core, line->account))
        return NULL;
    if (line->pass != core->pass)
        line->next = line->jobs.next;
    line->pass = core->pass;
    return line->next == &line->jobs ? NULL : mate_entry(line->next);
}

// Returns the foremost of `first` (may be NULL) and the next jobs of the size's lines.
static struct job *size_first(const struct core *core, struct size *size, struct job *first)
{
    LIST_FOREACH (node, &size->lines) {
        struct job *job = line_next(core, line_entry(node));
        if (job && (!first || line_goes_before(core, job, first)))
            first = job;
    }
    return first;
}

// Returns the first of the next jobs of all lines, and advances its line; NULL: none.
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

// True if all devices of the pool are usable and no earlier job has reserved one of them.
static bool pool_may_be_had(const struct core *core, const struct pass *pass,
                            const struct pool *pool)
{
    return !devices_meet(&core->unusable, &pool->place) &&
           !devices_meet(&pass->reserved, &pool->place);
}

// True if the same holds and the pool's devices are free.
static bool pool_is_free(const struct core *core, const struct pass *pass, const struct pool *pool)
{
    return !devices_meet(&core->devices_leased, &pool->place) && pool_may_be_had(core, pass, pool);
}

// The same for a pool that is up: devices that its killed twin still leases count as free.
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

// Returns a starting pool that was started to stand by and has lost its twin, or NULL.
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

// Returns the cold pool with the fewest failed starts, so that no broken device blocks a job.
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

// Returns the pool to wait for: the one with the fewest busy devices. Later jobs may not use its
// devices, so the wait ends when the jobs that run now have ended.
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

// Ranks and crews in use. Stuck ranks count only as the crew of their pool, because they cannot be
// ended.
struct room {
    int ranks, pools;
};

static struct room room_taken(const struct core *core)
{
    return (struct room){.ranks = core->ranks_alive - core->ranks_stuck,
                         .pools = bits_in(core->crews_used) - core->pools_stuck};
}

// True if the pool fits beside the ranks and pools in use. A pool that is larger than the limit may
// run alone.
static bool room_for(const struct core *core, const struct room *taken, const struct pool *pool)
{
    return taken->pools + core->pools_stuck < POOLS_MAX &&
           (taken->pools == 0 || taken->ranks + pool->world_size <= core->config.ranks_max);
}

// room_taken() after the killed ranks are reaped.
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

// Stops standby pools on the list until there will be room.
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

// True if there is room now. Otherwise stops standby pools, and then idle pools, the least recently
// used first, until there will be room. Does not stop pools that an earlier job has reserved.
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

// True if some pool of this size is up or starting.
static bool size_has_pool(const struct size *size)
{
    const int *modes = size->modes;
    return modes[MODE_STARTING] + modes[MODE_IDLE] + modes[MODE_RUNNING] + modes[MODE_SUSPECT] > 0;
}

// Ranks and crews that will be in use when each size with waiting jobs has a pool.
static struct room room_after_starts(const struct core *core)
{
    struct room taken = room_taken(core);
    LIST_FOREACH (node, &core->sizes_waiting) {
        if (size_has_pool(size_entry(node)))
            continue;
        taken.ranks += size_entry(node)->world_size;
        taken.pools++;
    }
    return taken;
}

// ---- dispatch -------------------------------------------------------------------------------

// Starts the pool if there is room. Otherwise later jobs may start no pool in this pass.
static bool dispatch_start(struct core *core, struct pass *pass, struct pool *pool)
{
    if (!pass->room)
        return false;
    pass->room = room_make(core, pool);
    if (pass->room)
        pool_handle(core, pool, &(struct pool_event){.kind = POOL_START, .rank = -1});
    return pass->room;
}

// True if the job's memory fits beside the running jobs. A job always fits if none is running.
static bool memory_fits(const struct core *core, const struct pass *pass, const struct job *job)
{
    uint64_t most = core->config.memory_max;
    return pass->memory && (most == 0 || core->memory == 0 || core->memory + job->memory <= most);
}

// Stops pools on these devices that are being started and that no job awaits. One of them may hang
// until its start timeout.
static void stop_unawaited(struct core *core, const struct place *place)
{
    LIST_FOREACH (node, &core->modes[MODE_STARTING]) {
        struct pool *pool = pool_entry(node);
        if (pool_is_unawaited(pool) && pool->place.hosts & place->hosts &&
            pool->place.slots & place->slots)
            pool_handle(core, pool,
                        &(struct pool_event){.kind = POOL_STOP,
                                             .rank = -1,
                                             .why = "no job waits for it, and another one needs "
                                                    "its devices"});
    }
}

static void pool_reserve(struct core *core, struct pass *pass, struct pool *pool)
{
    devices_add(&pass->reserved, &pool->place, &core->devices_all);
    pool->pass = core->pass;
    stop_unawaited(core, &pool->place);
}

// Runs the job, or reserves or starts a pool for it.
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
        // Later jobs of the same size cannot run either.
        size->closed = true;
        job->account->taken--;
    }
}

// ---- spares ---------------------------------------------------------------------------------

// Devices on which a pool starts, or has to start for a waiting job.
static struct devices devices_of_starts(const struct core *core)
{
    struct devices starts = {{0}};
    LIST_FOREACH (node, &core->modes[MODE_STARTING])
        devices_add(&starts, &pool_entry(node)->place, &core->devices_all);
    LIST_FOREACH (node, &core->sizes_waiting) {
        const struct size *size = size_entry(node);
        if (size_has_pool(size))
            continue;
        for (const struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
            if (pool->mode == MODE_COLD && twin_leads(pool) && !twin_rests(pool) &&
                !devices_meet(&core->unusable, &pool->place))
                devices_add(&starts, &pool->place, &core->devices_all);
    }
    return starts;
}

// Spares of a pass.
struct spares {
    struct room taken;     // with the pools that waiting jobs need
    struct devices starts; // devices_of_starts(), and those of the spares that the pass starts
    uint64_t next_ns;      // when the next pool has been ready for spare_delay_ns
};

// The time from which the pool may have a spare. The delay lets the first jobs of other world sizes
// start their pools. A pool that was started within the delay after a loss has no delay: if it was
// lost again and again before the delay is over, it would never get a spare.
static uint64_t spare_from_ns(const struct core *core, const struct pool *pool)
{
    const struct pool *twin = pool->twin;
    uint64_t lost_ns = pool->lost_ns > twin->lost_ns ? pool->lost_ns : twin->lost_ns;
    uint64_t delay_ns = core->config.spare_delay_ns;
    bool lost = pool->deaths + twin->deaths > 0 && pool->started_ns >= lost_ns;
    if (lost && pool->started_ns - lost_ns < delay_ns)
        delay_ns = 0;
    return time_after(pool->ready_ns, delay_ns);
}

// Starts the twins of the pools that are in this mode, as long as there is room. On a device a
// spare starts alone: drivers start one process after the other, and a job may wait for the other
// pool.
static void start_spares(struct core *core, struct spares *spares, enum pool_mode mode)
{
    LIST_FOREACH (node, &core->modes[mode]) {
        const struct pool *pool = pool_entry(node);
        struct pool *twin = pool->twin;
        if (!twin || twin->mode != MODE_COLD || devices_meet(&core->unusable, &twin->place) ||
            devices_meet(&spares->starts, &twin->place) || !room_for(core, &spares->taken, twin))
            continue;
        uint64_t at_ns = spare_from_ns(core, pool);
        if (at_ns > core->now_ns) {
            spares->next_ns = at_ns < spares->next_ns ? at_ns : spares->next_ns;
            continue;
        }
        spares->taken.ranks += twin->world_size;
        spares->taken.pools++;
        devices_add(&spares->starts, &twin->place, &core->devices_all);
        pool_handle(core, twin,
                    &(struct pool_event){.kind = POOL_START, .rank = -1, .spare = true});
    }
}

// True if some usable device is free, or leased by a killed pool for its twin, and not reserved.
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

// Sets the timer for the next time at which a waiting user falls below the limit of device time.
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
    struct spares spares = {room_after_starts(core), devices_of_starts(core), TIMERS_NEVER};
    start_spares(core, &spares, MODE_RUNNING);
    start_spares(core, &spares, MODE_SUSPECT);
    start_spares(core, &spares, MODE_IDLE);
    timers_set(&core->timers, timer_of_spares(core), spares.next_ns);
}
