// SPDX-License-Identifier: Apache-2.0
// The status of the core.
#include <string.h>

#include "daemon/core/core.h"
#include "daemon/core/failures.h"
#include "daemon/core/pool_view.h"
#include "daemon/core/state.h"
#include "daemon/core/stuck.h"
#include "daemon/core/twin.h"

static const enum pool_state pool_states[MODE_COUNT] = {
    [MODE_COLD] = POOL_COLD,       [MODE_STARTING] = POOL_STARTING, [MODE_IDLE] = POOL_IDLE,
    [MODE_RUNNING] = POOL_RUNNING, [MODE_SUSPECT] = POOL_RUNNING,   [MODE_STOPPING] = POOL_STOPPING,
    [MODE_STUCK] = POOL_STUCK,     [MODE_BACKOFF] = POOL_BACKOFF,
};

// The state of a pool on the wire.
static enum pool_state pool_state(const struct pool *pool)
{
    bool down = pool->mode == MODE_BACKOFF && failures_of(pool)->count == FAILURES_MAX;
    return down ? POOL_DOWN : pool_states[pool->mode];
}

static void core_describe(const struct core *core, const struct pool *pool, struct wire_pool *wire)
{
    bool stuck = pool->mode == MODE_STUCK;
    struct error loss;
    pool_loss_text(core, pool, &loss);
    if (stuck)
        error_set(&loss, STATUS_OK, "rank %d was killed and does not end",
                  __builtin_ctzll(pool->alive));
    *wire = (struct wire_pool){
        .guest = pool->size->implementation,
        .crew = pool->crew,
        .nodes = pool->size->nodes,
        .world_size = pool->world_size,
        .instance = pool->instance,
        .state = pool_state(pool),
        .generation = pool->starts,
        .jobs = pool->jobs,
        .deaths = pool->deaths,
        .spare = !twin_leads(pool),
        .hosts = stuck ? stuck_place(core, pool).hosts : pool->place.hosts,
        .devices = stuck ? stuck_place(core, pool).slots : pool->place.slots,
    };
    memcpy(wire->last_failure, loss.text, sizeof(wire->last_failure));
}

// Describes the pools that were ever started, at most POOLS_MAX. If there are more, omits cold
// pools and then pools in BACKOFF. At most POOLS_MAX pools are in other modes, since these have a
// crew.
static int core_describe_pools(const struct core *core, struct wire_pool *pools)
{
    int cold = (int)list_length(&core->modes[MODE_COLD]);
    int paused = (int)list_length(&core->modes[MODE_BACKOFF]);
    int paused_max = POOLS_MAX - (core->pool_count - cold - paused);
    int cold_max = paused_max - paused;
    int count = 0;
    for (int i = 0; i < core->pool_count && count < POOLS_MAX; i++) {
        const struct pool *pool = &core->pools[i];
        if (pool->mode == MODE_COLD && (pool->starts == 0 || cold_max-- <= 0))
            continue;
        if (pool->mode == MODE_BACKOFF && paused_max-- <= 0)
            continue;
        core_describe(core, pool, &pools[count++]);
    }
    return count;
}

static void core_describe_host(const struct core *core, int host, struct wire_host *wire)
{
    const struct core_host *config = &core->config.hosts[host];
    *wire = (struct wire_host){.devices = config->device_count,
                               .devices_out = core->devices_out.on[host],
                               .devices_stuck = core->devices_stuck.on[host],
                               .lost = core_host_is_lost(core, host)};
    memcpy(wire->name, config->name, sizeof(wire->name));
}

void core_status(const struct core *core, struct wire_status *status, struct wire_pool *pools)
{
    status->queued = core->job_counts[JOB_QUEUED];
    status->running = core->job_counts[JOB_RUNNING];
    status->admitted = core->number;
    status->refused = core->refused;
    status->draining = core->draining;
    status->devices_stuck = core->devices_stuck.on[0];
    status->host_count = core->config.host_count > 1 ? core->config.host_count : 0;
    for (int host = 0; host < status->host_count; host++)
        core_describe_host(core, host, &status->hosts[host]);
    status->pool_count = core_describe_pools(core, pools);
    status->pools = pools;
}
