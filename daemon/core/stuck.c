// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/stuck.h"

#include "daemon/core/state.h"

// The devices of a pool lie side by side.
int stuck_device(const struct pool *pool, int rank)
{
    return __builtin_ctzll(pool->devices) + rank % bits_in(pool->devices);
}

uint64_t stuck_devices(const struct pool *pool)
{
    uint64_t devices = 0;
    for (uint64_t alive = pool->alive; alive; alive &= alive - 1)
        devices |= bit_of(stuck_device(pool, __builtin_ctzll(alive)));
    return devices;
}

void stuck_count(struct core *core)
{
    core->devices_stuck = 0;
    core->ranks_stuck = core->pools_stuck = 0;
    LIST_FOREACH (node, &core->modes[MODE_STUCK]) {
        const struct pool *pool = pool_entry(node);
        core->devices_stuck |= stuck_devices(pool);
        core->ranks_stuck += bits_in(pool->alive);
        core->pools_stuck++;
    }
}

// Without a free crew nothing can be started, and then nothing else is up.
bool stuck_leaves(const struct core *core, const struct size *size)
{
    if (core->pools_stuck == POOLS_MAX)
        return false;
    for (int i = 0; i < size->pool_count; i++)
        if (!(size->pools[i].devices & core->devices_stuck))
            return true;
    return false;
}

// Devices of the pools that would serve the size.
static uint64_t stuck_wanted(const struct size *size)
{
    uint64_t wanted = 0;
    for (int i = 0; i < size->pool_count; i++)
        wanted |= size->pools[i].devices;
    return wanted;
}

// A rank of the pool that sits on one of the devices, or else -1.
static int stuck_rank_on(const struct pool *pool, uint64_t devices)
{
    for (uint64_t alive = pool->alive; alive; alive &= alive - 1) {
        int rank = __builtin_ctzll(alive);
        if (devices & bit_of(stuck_device(pool, rank)))
            return rank;
    }
    return -1;
}

static bool stuck_find(const struct core *core, const struct size *size, struct core_stuck *stuck)
{
    if (core->pools_stuck == 0 || stuck_leaves(core, size))
        return false;
    uint64_t wanted = stuck_wanted(size);
    for (int crew = 0; crew < POOLS_MAX; crew++) {
        const struct pool *pool = core->crews[crew];
        bool any = core->pools_stuck == POOLS_MAX && wanted;
        int rank = pool && pool->mode == MODE_STUCK
                       ? stuck_rank_on(pool, any ? core->devices_all : wanted)
                       : -1;
        if (rank < 0)
            continue;
        *stuck = (struct core_stuck){crew, pool->generation, rank, stuck_device(pool, rank)};
        return true;
    }
    return false;
}

bool core_is_stuck(const struct core *core, int implementation, int world_size,
                   struct core_stuck *stuck)
{
    return !core->draining && stuck_find(core, core_size(core, implementation, world_size), stuck);
}

void stuck_refuse_waiting(struct core *core, struct size *size)
{
    struct list *queue = &size->queue;
    struct core_stuck stuck;
    if (list_empty(queue) || !stuck_find(core, size, &stuck))
        return;
    struct job_event event = {
        .kind = JOB_REFUSE_STUCK, .pool = core->crews[stuck.pool], .rank = stuck.rank};
    LIST_FOREACH (node, queue)
        job_handle(core, job_entry(node), &event);
}
