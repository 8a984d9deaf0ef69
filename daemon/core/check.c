// SPDX-License-Identifier: Apache-2.0
// Checks every invariant of the state: recounts all counters, and checks links in both directions.
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "daemon/core/core.h"
#include "daemon/core/failures.h"
#include "daemon/core/hosts.h"
#include "daemon/core/state.h"
#include "daemon/core/stuck.h"
#include "daemon/core/twin.h"

// LIST_ENTRY() and LIST_FOREACH() do not accept const lists.
static const struct job *job_of(const struct list *node)
{
    return (const struct job *)(const void *)((const char *)node - offsetof(struct job, node));
}

static const struct job *mate_of(const struct list *node)
{
    return (const struct job *)(const void *)((const char *)node - offsetof(struct job, mate));
}

static const struct line *line_of(const struct list *node)
{
    return (const struct line *)(const void *)((const char *)node - offsetof(struct line, node));
}

static const struct pool *pool_of(const struct list *node)
{
    return (const struct pool *)(const void *)((const char *)node - offsetof(struct pool, node));
}

static void check_job(const struct core *core, const struct job *job)
{
    assert(job == &core->jobs[job->slot]);
    bool lives = job->state != JOB_FREE;
    bool timer = timers_is_set(&core->timers, job->slot);
    assert(timer == (lives && job->deadline_ns != TIMERS_NEVER));
    assert(!timer || core->timers.at_ns[job->slot] == job->deadline_ns);
    assert((job->pool != NULL) == (job->state == JOB_RUNNING));
    if (!lives)
        return;
    assert(job->number >= 1 && job->number <= core->number);
    assert(job->size->pool_count > 0);
    assert(job->admitted_ns <= core->now_ns && job->deadline_ns > core->now_ns);
    const struct ids_claim *claim;
    int index;
    assert(ids_find(&core->ids, ids_of(&core->ids, job->slot), &index, &claim) == IDS_LIVING);
    assert(index == job->slot && claim->case_hash == job->case_hash && !job->abandoned);
}

static int check_job_list(const struct core *core, const struct list *head, enum job_state state,
                          const struct size *size)
{
    int count = 0;
    uint64_t number = 0, cost_ns = 0;
    for (const struct list *node = head->next; node != head; node = node->next) {
        const struct job *job = job_of(node);
        check_job(core, job);
        assert(job->state == state);
        assert(!size || (job->size == size && job->number > number));
        number = job->number;
        cost_ns += job->cost_ns;
        count++;
    }
    assert(!size || cost_ns == size->cost_ns);
    return count;
}

// Every job in the queue of a size is in exactly one of its lines, in order of admission.
static void check_lines(const struct size *size)
{
    int jobs = 0;
    const struct list *lines = &size->lines;
    for (const struct list *node = lines->next; node != lines; node = node->next) {
        const struct line *line = line_of(node);
        uint64_t number = 0;
        assert(!list_empty(&line->jobs));
        for (const struct list *mate = line->jobs.next; mate != &line->jobs; mate = mate->next) {
            const struct job *job = mate_of(mate);
            assert(job->state == JOB_QUEUED && job->size == size && job->line == line);
            assert(job->account == line->account && job->number > number);
            number = job->number;
            jobs++;
        }
    }
    assert(jobs == (int)list_length(&size->queue));
}

static uint64_t check_memory(const struct core *core)
{
    uint64_t memory = 0;
    const struct list *running = &core->jobs_running;
    for (const struct list *node = running->next; node != running; node = node->next)
        memory += job_of(node)->memory;
    return memory;
}

static void check_jobs(const struct core *core)
{
    int queued = 0;
    for (int i = 0; i < core->size_count; i++) {
        const struct size *size = &core->sizes[i];
        int count = check_job_list(core, &size->queue, JOB_QUEUED, size);
        assert(list_empty(&size->node) == (count == 0));
        check_lines(size);
        queued += count;
        // No job waits for a size without possible pools.
        assert(count == 0 || stuck_leaves(core, size));
    }
    assert(core->job_counts[JOB_QUEUED] == queued);
    assert(!core->pinned || core->pinned->state == JOB_QUEUED);
    assert(core->memory == check_memory(core));
    assert(core->job_counts[JOB_RUNNING] ==
           check_job_list(core, &core->jobs_running, JOB_RUNNING, NULL));
    assert(core->job_counts[JOB_FREE] == check_job_list(core, &core->jobs_free, JOB_FREE, NULL));
    assert(core->job_counts[JOB_FREE] + core->job_counts[JOB_QUEUED] +
               core->job_counts[JOB_RUNNING] ==
           core->config.queue_max);
}

// Takes time proportional to users times jobs.
static void check_users(const struct core *core)
{
    const struct users *users = &core->users;
    int queued_all = 0, running_all = 0, left = users->open;
    for (const struct account *a = users->accounts; left > 0; a++) {
        int queued = 0, running = 0;
        assert(a < users->accounts + users->capacity);
        if (!a->open)
            continue;
        left--;
        for (int slot = 0; slot < core->config.queue_max; slot++) {
            const struct job *job = &core->jobs[slot];
            queued += job->state == JOB_QUEUED && job->account == a;
            running += job->state == JOB_RUNNING && job->account == a;
        }
        assert(queued == a->queued && running == a->running && users_find(users, a->user) == a);
        assert(a->used_ns <= users->level_ns || a->used_ns - users->level_ns <= users->window_ns);
        queued_all += queued;
        running_all += running;
    }
    assert(queued_all == core->job_counts[JOB_QUEUED]);
    assert(running_all == core->job_counts[JOB_RUNNING]);
}

// Invariants of a pool whose mode implies ranks.
static void check_ranks(const struct core *core, const struct pool *pool)
{
    uint64_t all = mask_of(pool->world_size);
    bool runs = pool->mode == MODE_RUNNING || pool->mode == MODE_SUSPECT;
    assert(core->crews[pool->crew] == pool && core->crews_used & bit_of(pool->crew));
    assert(pool->generation >= 1 && pool->generation <= core->generation);
    assert(!(pool->alive & ~all) && !(pool->ready & ~all) && !(pool->reported & ~all));
    assert(pool->alive != 0);
    bool killed = pool->mode == MODE_STOPPING || pool->mode == MODE_STUCK;
    assert(killed || pool->mode == MODE_SUSPECT || pool->alive == all);
    assert((pool->ready == all) ==
           (runs || pool->mode == MODE_IDLE || (killed && pool->ready == all)));
    assert((pool->job != NULL) == runs);
    assert(!runs || (pool->job->state == JOB_RUNNING && pool->job->pool == pool &&
                     pool->job->size == pool->size));
    assert(!runs || pool->reported != all);
    assert(pool->mode != MODE_SUSPECT || pool->victims);
    assert(!pool->start_failed ||
           (killed && (pool->as_spare ? pool->spare_failures : pool->failures).count > 0));
    assert(pool->leased || pool->mode == MODE_IDLE || killed ||
           (pool->mode == MODE_STARTING && pool->as_spare));
    assert(pool->mode != MODE_STARTING || pool->leased != pool->as_spare);
    assert(!pool->must_wait || (killed && pool->as_spare && !pool->used));
    assert(!pool->leased || (pool->mode != MODE_IDLE && pool->mode != MODE_STUCK));
    // The core does not wait for ranks on lost hosts.
    assert(killed || !(pool->place.hosts & core->hosts_lost));
    for (uint64_t left = pool->alive; left; left &= left - 1)
        assert(!(core->hosts_lost & bit_of(hosts_seat(core, pool, __builtin_ctzll(left)).host)));
}

static void check_no_ranks(const struct pool *pool)
{
    assert(pool->crew == -1 && !pool->alive && !pool->job && !pool->leased);
    assert(!pool->start_failed && !pool->must_wait);
    assert(pool->mode != MODE_BACKOFF || pool->as_spare || pool->failures.count > 0);
}

// Of two twins, at most one works; the other stands by.
static void check_twins(const struct core *core, const struct pool *pool)
{
    const struct pool *twin = pool->twin;
    assert((twin != NULL) == (core->config.spares && pool->size->implementation == 0));
    assert(twin || !pool->yields);
    if (!twin)
        return;
    assert(twin->twin == pool && twin != pool &&
           memcmp(&twin->place, &pool->place, sizeof(pool->place)) == 0);
    assert(twin->size == pool->size && twin->instance == pool->instance);
    assert(twin->failures.count == pool->failures.count &&
           twin->spare_failures.count == pool->spare_failures.count);
    assert(!pool->leased || !twin->leased);
    assert(!pool->yields || (pool->mode == MODE_STOPPING && twin->leased));
    if (!twin_stands_by(pool))
        return;
    assert(pool->mode == MODE_IDLE || (pool->mode == MODE_STARTING && pool->as_spare));
    assert(twin->mode != MODE_STARTING);
}

// True if a timer must limit the pool's mode. A delay beyond the largest time sets no timer.
static bool check_times(const struct core *core, const struct pool *pool)
{
    enum pool_mode mode = pool->mode;
    const struct core_config *config = &core->config;
    uint64_t delay_ns = mode == MODE_IDLE       ? config->idle_timeout_ns
                        : mode == MODE_STARTING ? config->start_timeout_ns
                        : mode == MODE_STOPPING ? config->kill_timeout_ns
                                                : config->peer_grace_ns;
    bool timed = mode != MODE_IDLE || (delay_ns > 0 && !twin_stands_by(pool));
    return timed && time_after(core->now_ns, delay_ns) != TIMERS_NEVER;
}

// The place has as many hosts as its size requires. Each host has all slots of the place, or enough
// of them with ranks_per_device ranks on each.
static void check_place(const struct core *core, const struct pool *pool)
{
    const struct size *size = pool->size;
    int slots = size->world_size / size->nodes;
    assert(bits_in(pool->place.hosts) == size->nodes && bits_in(pool->place.slots) <= slots);
    assert(!(pool->place.hosts & ~mask_of(core->config.host_count)));
    for (uint64_t left = pool->place.hosts; left; left &= left - 1) {
        uint64_t all = core->devices_all.on[__builtin_ctzll(left)];
        assert(pool->place.slots & all);
        assert(bits_in(pool->place.slots & all) * core->config.ranks_per_device >= slots);
    }
}

static void check_pool(const struct core *core, const struct pool *pool)
{
    check_place(core, pool);
    assert(pool == &core->pools[pool->index]);
    assert(pool->failures.count >= 0 && pool->failures.count <= FAILURES_MAX);
    assert(pool->spare_failures.count >= 0 && pool->spare_failures.count <= FAILURES_MAX);
    check_twins(core, pool);
    int timer_id = core->config.queue_max + pool->index;
    bool timer = timers_is_set(&core->timers, timer_id);
    assert(!timer || core->timers.at_ns[timer_id] > core->now_ns);
    switch (pool->mode) {
    case MODE_COLD:
        assert(!timer);
        check_no_ranks(pool);
        break;
    case MODE_BACKOFF:
        assert(timer);
        check_no_ranks(pool);
        break;
    case MODE_STARTING:
    case MODE_STOPPING:
    case MODE_SUSPECT:
    case MODE_IDLE:
        assert(timer || !check_times(core, pool));
        assert(!timer || !twin_stands_by(pool) || pool->mode != MODE_IDLE);
        check_ranks(core, pool);
        break;
    default:
        assert(!timer);
        check_ranks(core, pool);
    }
}

static void check_stuck(const struct core *core, const struct pool *pool, struct devices *stuck)
{
    for (int rank = 0; rank < pool->world_size; rank++) {
        struct core_seat seat = hosts_seat(core, pool, rank);
        if (pool->alive & bit_of(rank))
            stuck->on[seat.host] |= bit_of(seat.device);
    }
}

static void check_unusable(const struct core *core)
{
    assert(!(core->hosts_lost & ~mask_of(core->config.host_count)));
    for (int host = 0; host < core->config.host_count; host++) {
        uint64_t all = core->devices_all.on[host];
        uint64_t none = core->devices_stuck.on[host] | core->devices_out.on[host];
        assert(!(none & ~all));
        assert(core->unusable.on[host] == (core->hosts_lost & bit_of(host) ? all : none));
    }
}

// Invariants over all pools; counts pools by mode.
static void check_pools_together(const struct core *core)
{
    struct devices leased = {{0}}, stuck = {{0}};
    uint64_t crews = 0;
    int ranks = 0, ranks_stuck = 0, pools_stuck = 0;
    for (int i = 0; i < core->pool_count; i++) {
        const struct pool *pool = &core->pools[i];
        check_pool(core, pool);
        assert(!pool->leased || !devices_meet(&leased, &pool->place));
        if (pool->leased)
            devices_add(&leased, &pool->place, &core->devices_all);
        ranks += bits_in(pool->alive);
        if (pool->mode == MODE_STUCK) {
            check_stuck(core, pool, &stuck);
            ranks_stuck += bits_in(pool->alive);
            pools_stuck++;
        }
        if (pool->crew >= 0)
            crews |= bit_of(pool->crew);
    }
    assert(devices_equal(&leased, &core->devices_leased));
    assert(crews == core->crews_used && ranks == core->ranks_alive);
    assert(devices_equal(&stuck, &core->devices_stuck));
    check_unusable(core);
    assert(ranks_stuck == core->ranks_stuck && pools_stuck == core->pools_stuck);
    assert(ranks - ranks_stuck <= core->config.ranks_max || bits_in(crews) - pools_stuck == 1);
    for (int crew = 0; crew < POOLS_MAX; crew++)
        assert((core->crews[crew] != NULL) == ((crews >> crew) & 1));
}

static void check_pool_lists(const struct core *core)
{
    int counted[MODE_COUNT] = {0}, total = 0;
    for (int i = 0; i < core->size_count; i++)
        for (int mode = 0; mode < MODE_COUNT; mode++)
            counted[mode] += core->sizes[i].modes[mode];
    for (int mode = 0; mode < MODE_COUNT; mode++) {
        int count = 0;
        const struct list *head = &core->modes[mode];
        for (const struct list *node = head->next; node != head; node = node->next) {
            assert(pool_of(node)->mode == (enum pool_mode)mode);
            count++;
        }
        assert(count == counted[mode]);
        total += count;
    }
    assert(total == core->pool_count);
}

void core_assert(const struct core *core)
{
    timers_assert(&core->timers);
    check_jobs(core);
    check_users(core);
    check_pools_together(core);
    check_pool_lists(core);
    assert(!core->exited || (core->draining && bits_in(core->crews_used) == core->pools_stuck &&
                             core->job_counts[JOB_FREE] == core->config.queue_max));
}
