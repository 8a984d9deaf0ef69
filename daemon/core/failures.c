// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/failures.h"

#include "daemon/core/job.h"
#include "daemon/core/state.h"

// After the first failure the start is retried at once. Later the pause is a fraction of the time
// for which starts have failed: a pool recovers soon after a short problem, and a long problem
// costs few starts.
#define PAUSE_PART     8
#define PAUSE_MIN_NS   (UINT64_C(250) * 1000000)
#define PAUSE_MAX_NS   (UINT64_C(30) * 1000000000)
// Minimum pause after the loss of a pool that stood by and never had a job.
#define SPARE_PAUSE_NS (UINT64_C(1) * 1000000000)

const struct failures *failures_of(const struct pool *pool)
{
    return pool->as_spare ? &pool->spare_failures : &pool->failures;
}

// Copies the counts to the twin, so that failures of both pools are added up.
static void twin_tell(const struct pool *pool)
{
    if (!pool->twin)
        return;
    pool->twin->failures = pool->failures;
    pool->twin->spare_failures = pool->spare_failures;
}

void failures_note(struct core *core, struct pool *pool, int weight)
{
    struct failures *failures = pool->as_spare ? &pool->spare_failures : &pool->failures;
    if (failures->count == 0)
        failures->since_ns = core->now_ns;
    if (failures->count < FAILURES_MAX && failures->count + weight >= FAILURES_MAX)
        failures->down_ns = core->now_ns;
    failures->count += weight;
    if (failures->count > FAILURES_MAX)
        failures->count = FAILURES_MAX;
    twin_tell(pool);
}

void failures_forget(struct pool *pool)
{
    pool->failures.count = 0;
    if (pool->as_spare)
        pool->spare_failures.count = 0;
    twin_tell(pool);
}

uint64_t failures_pause_ns(const struct core *core, const struct pool *pool)
{
    const struct failures *failures = failures_of(pool);
    if (!pool->start_failed || (failures->count <= FAILURE_WHOLE && !pool->must_wait))
        return pool->must_wait ? SPARE_PAUSE_NS : 0;
    uint64_t least_ns = pool->must_wait ? SPARE_PAUSE_NS : PAUSE_MIN_NS;
    uint64_t pause_ns = (core->now_ns - failures->since_ns) / PAUSE_PART;
    pause_ns = pause_ns > least_ns ? pause_ns : least_ns;
    return pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
}

uint64_t failures_down_ns(const struct core *core, const struct size *size)
{
    uint64_t since_ns = 0;
    bool any = false;
    for (const struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++) {
        if (devices_meet(&core->unusable, &pool->place))
            continue;
        if (pool->failures.count < FAILURES_MAX)
            return TIMERS_NEVER;
        any = true;
        since_ns = since_ns > pool->failures.down_ns ? since_ns : pool->failures.down_ns;
    }
    return any ? since_ns : TIMERS_NEVER;
}

struct pool *failures_culprit(const struct size *size)
{
    struct pool *culprit = size->pools;
    for (struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
        if (pool->lost_ns > culprit->lost_ns)
            culprit = pool;
    return culprit;
}

// While draining, no job waits for a DOWN pool.
void failures_refuse_waiting(struct core *core, struct size *size)
{
    uint64_t down_ns = failures_down_ns(core, size);
    if (down_ns == TIMERS_NEVER)
        return;
    struct pool *pool = failures_culprit(size);
    struct job_event event = {.kind = JOB_REFUSE_DOWN, .pool = pool, .rank = pool->loss.rank};
    LIST_FOREACH (node, &size->queue) {
        if (core->draining || core->now_ns - down_ns >= job_entry(node)->patience_ns)
            job_handle(core, job_entry(node), &event);
    }
}
