// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/fuzz_core_world.h"

#include <stdio.h>

#include "common/report.h"

struct world w;

_Noreturn void world_fail(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

static struct crew *crew_of(const struct action *a)
{
    require(a->pool >= 0 && a->pool < POOLS_MAX);
    struct crew *crew = &w.crews[a->pool];
    require(crew->up && crew->generation == a->generation && crew->world_size == a->world_size);
    return crew;
}

static struct job *job_of(const struct action *a)
{
    require(a->slot >= 0 && a->slot < w.config.queue_max);
    require(w.jobs[a->slot].lives);
    return &w.jobs[a->slot];
}

// The devices of stuck ranks.
static uint64_t stuck_devices(void)
{
    uint64_t devices = 0;
    for (const struct crew *crew = w.crews; crew < w.crews + w.pools; crew++) {
        uint64_t left = crew->devices;
        if (!crew->up || !crew->stuck)
            continue;
        for (int rank = 0; rank < crew->world_size; rank++, left &= left - 1) {
            left = left ? left : crew->devices;
            devices |= crew->alive >> rank & 1 ? left & -left : 0;
        }
    }
    return devices;
}

// True if a pool of the same world size is up on these devices. The START must then be a spare.
static bool is_spare(const struct action *a)
{
    for (const struct crew *crew = w.crews; crew < w.crews + w.pools; crew++)
        if (crew->up && !crew->killed && crew->world_size == a->world_size &&
            crew->devices == a->devices)
            return true;
    return false;
}

static void started(const struct action *a)
{
    require(a->pool >= 0 && a->pool < POOLS_MAX && !w.crews[a->pool].up);
    require(a->generation > w.generation);
    require(a->world_size >= 1 && a->world_size <= WORLD_SIZE_MAX);
    require(a->devices && !(a->devices & ~mask_of(w.config.hosts[0].device_count)));
    require(!(a->devices & stuck_devices()));
    require(is_spare(a) == a->spare && (w.config.spares || !a->spare));
    w.generation = a->generation;
    w.pools = a->pool < w.pools ? w.pools : a->pool + 1;
    w.crews[a->pool] = (struct crew){.up = true,
                                     .generation = a->generation,
                                     .world_size = a->world_size,
                                     .slot = -1,
                                     .alive = mask_of(a->world_size),
                                     .devices = a->devices};
    if (w.start_fails) {
        w.start_fails = false;
        w.crews[a->pool].up = false;
        w.crews[a->pool].failed = true;
        core_start_failed(w.core, w.now_ns, a->pool, a->generation);
    }
}

static void ran(const struct action *a)
{
    struct crew *crew = crew_of(a);
    struct job *job = job_of(a);
    uint64_t all = mask_of(a->world_size);
    require(!crew->killed && crew->slot < 0 && crew->ready == all && crew->alive == all);
    require(!job->runs && job->world_size == a->world_size && a->job > 0);
    require(!(crew->devices & stuck_devices()));
    for (const struct crew *other = w.crews; other < w.crews + w.pools; other++)
        require(!other->up || other->slot < 0 || !(other->devices & crew->devices));
    job->runs = true;
    job->pool = a->pool;
    job->number = a->job;
    if (job->run_timeout_ns > 0 && after(job->run_timeout_ns) < job->deadline_ns)
        job->deadline_ns = after(job->run_timeout_ns);
    w.number = a->job > w.number ? a->job : w.number;
    crew->slot = a->slot;
    crew->reported = 0;
    if (w.run_fails) {
        w.run_fails = false;
        core_rank_failed(w.core, w.now_ns, a->pool, a->generation, 0, FAILURE_OWN, -1);
    }
}

static enum status status_of(enum cause cause)
{
    switch (cause) {
    case CAUSE_NONE:
        return STATUS_OK;
    case CAUSE_RANK_EXITED:
    case CAUSE_PEER_LOST:
        return STATUS_ABORTED;
    case CAUSE_RANK_FAILED:
        return STATUS_INTERNAL;
    case CAUSE_DEADLINE_QUEUED:
    case CAUSE_DEADLINE_STARTING:
    case CAUSE_DEADLINE_RUNNING:
        return STATUS_DEADLINE_EXCEEDED;
    case CAUSE_CANCELLED:
        return STATUS_CANCELLED;
    case CAUSE_POISON:
        return STATUS_FAILED_PRECONDITION;
    default:
        return STATUS_UNAVAILABLE;
    }
}

static void answered(const struct action *a)
{
    struct job *job = job_of(a);
    require(a->status == status_of(a->cause));
    require(a->total_ns == w.now_ns - job->admitted_ns);
    require(a->queue_ns + a->start_ns + a->run_ns == a->total_ns);
    require(!job->abandoned || (a->cause == CAUSE_CANCELLED && a->answer_index == -1));
    require(a->answer_index >= (job->abandoned ? -1 : 0) && a->answer_index < ANSWERED_IDS_MAX);
    if (job->runs) {
        struct crew *crew = &w.crews[job->pool];
        require(a->job == job->number && a->pool == job->pool && crew->slot == a->slot);
        // A verdict needs the reports of all ranks.
        require(a->cause != CAUSE_NONE || crew->reported == mask_of(crew->world_size));
        crew->slot = -1;
    } else {
        require(a->cause != CAUSE_NONE && a->cause != CAUSE_DEADLINE_RUNNING);
        require(a->cause != CAUSE_STUCK || (a->devices & stuck_devices()));
    }
    if (job->asked >= 0) {
        struct asked *asked = &w.asked[job->asked];
        asked->life = a->answer_index < 0 ? LIFE_FORGOTTEN : LIFE_ANSWERED;
        asked->place = a->answer_index;
    }
    job->lives = false;
}

static void killed(const struct action *a)
{
    require(a->pool >= 0 && a->pool < POOLS_MAX);
    const struct crew *never = &w.crews[a->pool];
    if (!never->up && never->failed && never->generation == a->generation)
        return;
    struct crew *crew = crew_of(a);
    require(!crew->killed && crew->alive && crew->slot < 0);
    crew->killed = true;
    crew->killed_ns = w.now_ns;
}

static void stuck(const struct action *a)
{
    struct crew *crew = crew_of(a);
    require(crew->killed && !crew->stuck && crew->alive);
    require(w.now_ns - crew->killed_ns >= w.config.kill_timeout_ns);
    require(a->rank >= 0 && a->rank < crew->world_size && (crew->alive >> a->rank & 1));
    crew->stuck = true;
    require(a->devices && !(a->devices & ~stuck_devices()));
}

int world_living_jobs(void)
{
    int count = 0;
    for (int slot = 0; slot < w.config.queue_max; slot++)
        count += w.jobs[slot].lives;
    return count;
}

static void ended(void)
{
    require(w.draining && world_living_jobs() == 0);
    for (const struct crew *crew = w.crews; crew < w.crews + w.pools; crew++)
        require(!crew->up || crew->stuck);
    w.exited = true;
}

void world_act(void)
{
    struct action a;
    while (core_next_action(w.core, &a)) {
        require(!w.exited);
        switch (a.kind) {
        case ACTION_START:
            started(&a);
            break;
        case ACTION_RUN:
            ran(&a);
            break;
        case ACTION_ANSWER:
            answered(&a);
            break;
        case ACTION_KILL:
            killed(&a);
            break;
        case ACTION_STUCK:
            stuck(&a);
            break;
        default:
            ended();
        }
    }
}

void world_settle(void)
{
    world_act();
    core_assert(w.core);
    for (int slot = 0; slot < w.config.queue_max; slot++) {
        const struct job *job = &w.jobs[slot];
        require(!job->lives || job->deadline_ns == NEVER || job->deadline_ns > w.now_ns);
        require(!job->lives || !job->abandoned || job->runs);
        require(!job->lives || core_next_time(w.core) <= job->deadline_ns);
    }
    for (const struct crew *crew = w.crews; crew < w.crews + w.pools; crew++)
        require(!crew->up || !crew->killed || crew->stuck || w.exited ||
                w.now_ns - crew->killed_ns < w.config.kill_timeout_ns);
    require(core_next_time(w.core) > w.now_ns);
}
