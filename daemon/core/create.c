// SPDX-License-Identifier: Apache-2.0
// Creates and destroys the state.
#include <assert.h>
#include <stdlib.h>

#include "daemon/core/core.h"
#include "daemon/core/hosts.h"
#include "daemon/core/job.h"
#include "daemon/core/line.h"
#include "daemon/core/pool.h"
#include "daemon/core/state.h"

// The window of accounts: all devices for a minute (users.h).
#define FAIR_WINDOW_NS (60 * UINT64_C(1000000000))

// Number of pools of a size: as many as fit side by side on the devices.
static int core_instances(const struct core_config *config, const struct size *size)
{
    int world_size = size->world_size, guest = size->implementation - 1;
    if (guest >= 0 && !(config->guests[guest].world_sizes & bit_of(world_size - 1)))
        return 0;
    return hosts_instances(config, size->implementation, world_size, size->nodes);
}

// A guest has no spares, because the resources of its start are not known.
static int size_twins(const struct core *core, const struct size *size)
{
    return core->config.spares && size->implementation == 0 ? 2 : 1;
}

// Returns the number of sizes, and fills in `sizes` unless it is NULL. Every world size has a size
// for one host. Sizes over several hosts exist only where pools are possible.
static int core_find_sizes(struct core *core, struct size *sizes)
{
    int count = 0;
    for (int first = 0; first < (1 + core->config.guest_count) * WORLD_SIZE_MAX; first++)
        for (int nodes = 1; nodes <= core->config.host_count; nodes++) {
            struct size size = {.implementation = first / WORLD_SIZE_MAX,
                                .world_size = first % WORLD_SIZE_MAX + 1,
                                .nodes = nodes};
            size.side_by_side = core_instances(&core->config, &size);
            size.shared = hosts_share_devices(&core->config, &size);
            size.pool_count = size_twins(core, &size) * size.side_by_side;
            if (sizes && nodes == 1)
                core->sizes_first[first] = count;
            if (sizes && (nodes == 1 || size.pool_count > 0))
                sizes[count] = size;
            count += nodes == 1 || size.pool_count > 0;
        }
    return count;
}

static bool core_allocate_sizes(struct core *core)
{
    core->size_count = core_find_sizes(core, NULL);
    core->sizes = calloc((size_t)core->size_count + 1, sizeof(*core->sizes));
    core->sizes_first =
        calloc((size_t)(1 + core->config.guest_count) * WORLD_SIZE_MAX, sizeof(*core->sizes_first));
    if (!core->sizes || !core->sizes_first)
        return false;
    core_find_sizes(core, core->sizes);
    for (struct size *size = core->sizes; size < core->sizes + core->size_count; size++) {
        list_init(&size->node);
        list_init(&size->queue);
        list_init(&size->lines);
        core->pool_count += size->pool_count;
    }
    return true;
}

static bool core_allocate(struct core *core)
{
    int jobs = core->config.queue_max;
    uint64_t window_ns = FAIR_WINDOW_NS * (uint64_t)core->device_count;
    if (!core_allocate_sizes(core))
        return false;
    core->jobs = calloc((size_t)jobs, sizeof(*core->jobs));
    core->lines = calloc((size_t)jobs, sizeof(*core->lines));
    core->pools = calloc((size_t)core->pool_count, sizeof(*core->pools));
    return core->jobs && core->lines && core->pools && ids_init(&core->ids, jobs) &&
           timers_init(&core->timers, jobs + core->pool_count + 2) &&
           users_init(&core->users, jobs, window_ns) && actions_init(&core->actions, jobs);
}

static void core_init_pools(struct core *core, struct size *size, int pool_first)
{
    int twins = size_twins(core, size);
    size->pools = core->pools + pool_first;
    for (int i = 0; i < size->pool_count; i++) {
        struct pool *twin = twins > 1 ? &size->pools[i ^ 1] : NULL;
        pool_init(core, pool_first + i, size, i / twins,
                  hosts_place(&core->config, size, i / twins), twin);
    }
}

static void core_init(struct core *core)
{
    list_init(&core->jobs_free);
    list_init(&core->jobs_running);
    list_init(&core->lines_free);
    list_init(&core->sizes_waiting);
    for (int mode = 0; mode < MODE_COUNT; mode++)
        list_init(&core->modes[mode]);
    for (int slot = 0; slot < core->config.queue_max; slot++) {
        job_init(core, slot);
        line_init(core, &core->lines[slot]);
    }
    for (int i = 0, pool = 0; i < core->size_count; pool += core->sizes[i++].pool_count)
        core_init_pools(core, &core->sizes[i], pool);
    hosts_count_unusable(core);
}

static void core_count_devices(struct core *core)
{
    for (int host = 0; host < core->config.host_count; host++) {
        const struct core_host *config = &core->config.hosts[host];
        assert(config->device_count >= 1 && config->device_count <= DEVICES_MAX);
        core->device_count += config->device_count;
        core->devices_all.on[host] = mask_of(config->device_count);
        core->hosts_lost |= config->away ? bit_of(host) : 0;
    }
}

struct core *core_create(const struct core_config *config)
{
    assert(config->host_count >= 1 && config->host_count <= HOSTS_MAX);
    assert(config->queue_max >= 1 && config->queue_max <= JOBS_MAX);
    assert(config->ranks_max >= 1);
    assert(config->ranks_per_device >= 1 && config->ranks_per_device <= WORLD_SIZE_MAX);
    assert(config->start_timeout_ns > 0 && config->kill_timeout_ns > 0);
    assert(config->guest_count >= 0 && config->guest_count <= GUESTS_MAX);
    struct core *core = calloc(1, sizeof(*core));
    if (!core)
        return NULL;
    core->config = *config;
    core_share(core, config->user_queue_max);
    core_count_devices(core);
    assert(config->user.time_ns == 0 || config->user.window_ns > 0);
    if (!core_allocate(core)) {
        core_destroy(core);
        return NULL;
    }
    core_init(core);
    core->users.limits = config->user;
    return core;
}

void core_destroy(struct core *core)
{
    if (!core)
        return;
    free(core->sizes);
    free(core->sizes_first);
    free(core->jobs);
    free(core->lines);
    free(core->pools);
    ids_fini(&core->ids);
    users_fini(&core->users);
    timers_fini(&core->timers);
    actions_fini(&core->actions);
    free(core);
}
