// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/stuck.h"

#include "daemon/core/hosts.h"
#include "daemon/core/job.h"
#include "daemon/core/state.h"

struct place stuck_place(const struct core *core, const struct pool *pool)
{
    struct place place = {0};
    for (uint64_t left = pool->alive; left; left &= left - 1) {
        struct core_seat seat = hosts_seat(core, pool, __builtin_ctzll(left));
        place.hosts |= bit_of(seat.host);
        place.slots |= bit_of(seat.device);
    }
    return place;
}

void stuck_count(struct core *core)
{
    core->devices_stuck = (struct devices){{0}};
    core->ranks_stuck = core->pools_stuck = 0;
    LIST_FOREACH (node, &core->modes[MODE_STUCK]) {
        const struct pool *pool = pool_entry(node);
        for (uint64_t left = pool->alive; left; left &= left - 1) {
            struct core_seat seat = hosts_seat(core, pool, __builtin_ctzll(left));
            core->devices_stuck.on[seat.host] |= bit_of(seat.device);
        }
        core->ranks_stuck += bits_in(pool->alive);
        core->pools_stuck++;
    }
    hosts_count_unusable(core);
}

// False if stuck pools have all crew numbers: then no other pool is up, and none can start.
bool stuck_leaves(const struct core *core, const struct size *size)
{
    if (core->pools_stuck == POOLS_MAX)
        return false;
    for (int i = 0; i < size->pool_count; i++)
        if (!devices_meet(&core->devices_stuck, &size->pools[i].place))
            return true;
    return false;
}

// True if the device is in the place of a pool of the size.
static bool size_wants(const struct size *size, struct core_seat seat)
{
    for (const struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
        if (pool->place.hosts & bit_of(seat.host) && pool->place.slots & bit_of(seat.device))
            return true;
    return false;
}

// Returns a stuck rank of the pool that blocks a pool of the size, or any stuck rank if stuck pools
// have all crew numbers; -1: none.
static int stuck_rank_in_way(const struct core *core, const struct pool *pool,
                             const struct size *size)
{
    bool any = core->pools_stuck == POOLS_MAX && size->pool_count > 0;
    if (any)
        return __builtin_ctzll(pool->alive);
    for (uint64_t left = pool->alive; left; left &= left - 1)
        if (size_wants(size, hosts_seat(core, pool, __builtin_ctzll(left))))
            return __builtin_ctzll(left);
    return -1;
}

bool stuck_find(const struct core *core, const struct size *size, struct core_stuck *stuck)
{
    if (core->pools_stuck == 0 || stuck_leaves(core, size))
        return false;
    for (int crew = 0; crew < POOLS_MAX; crew++) {
        const struct pool *pool = core->crews[crew];
        int rank = pool && pool->mode == MODE_STUCK ? stuck_rank_in_way(core, pool, size) : -1;
        if (rank < 0)
            continue;
        struct core_seat seat = hosts_seat(core, pool, rank);
        *stuck = (struct core_stuck){crew, pool->generation, rank, seat.host, seat.device};
        return true;
    }
    return false;
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
