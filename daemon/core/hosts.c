// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/hosts.h"

#include <assert.h>

#include "daemon/core/request.h"
#include "daemon/core/state.h"

// ---- places ---------------------------------------------------------------------------------

// Number of hosts that may run the implementation. Guests run only on the first host, the daemon's
// own, which has their programs.
static int hosts_for(const struct core_config *config, int implementation)
{
    return implementation > 0 ? 1 : config->host_count;
}

// Bit mask of the hosts that have the given block, which is slots block * slots and following.
static uint64_t hosts_with(const struct core_config *config, int host_count, int slots, int block)
{
    uint64_t hosts = 0;
    for (int host = 0; host < host_count; host++)
        if (config->hosts[host].device_count / slots > block)
            hosts |= bit_of(host);
    return hosts;
}

// Number of pools without shared devices that fit side by side on all blocks.
static int instances_of(const struct core_config *config, int host_count, int slots, int nodes)
{
    int instances = 0;
    for (int block = 0; block < DEVICES_MAX / slots; block++)
        instances += bits_in(hosts_with(config, host_count, slots, block)) / nodes;
    return instances;
}

bool hosts_share_devices(const struct core_config *config, const struct size *size)
{
    int slots = size->world_size / size->nodes;
    return slots == 0 ||
           instances_of(config, hosts_for(config, size->implementation), slots, size->nodes) == 0;
}

// Bit mask of the hosts that have room for `slots` ranks if ranks share devices.
static uint64_t hosts_shared(const struct core_config *config, int host_count, int slots)
{
    uint64_t hosts = 0;
    for (int host = 0; host < host_count; host++)
        if (config->hosts[host].device_count * config->ranks_per_device >= slots)
            hosts |= bit_of(host);
    return hosts;
}

// The hosts that have the block. If ranks must share devices, all devices of a host are block 0.
static uint64_t hosts_of_block(const struct core_config *config, const struct size *size, int block)
{
    int host_count = hosts_for(config, size->implementation);
    int slots = size->world_size / size->nodes;
    if (!size->shared)
        return hosts_with(config, host_count, slots, block);
    return block == 0 ? hosts_shared(config, host_count, slots) : 0;
}

int hosts_instances(const struct core_config *config, int implementation, int world_size, int nodes)
{
    int slots = world_size / nodes, host_count = hosts_for(config, implementation);
    if (nodes > host_count || world_size % nodes != 0)
        return 0;
    int instances = instances_of(config, host_count, slots, nodes);
    if (instances == 0)
        instances = bits_in(hosts_shared(config, host_count, slots)) / nodes;
    return nodes > 1 && instances > POOLS_MAX ? POOLS_MAX : instances;
}

// The set bits number first..first+count-1 of the mask.
static uint64_t bits_from(uint64_t mask, int first, int count)
{
    uint64_t bits = 0;
    for (int i = first; i < first + count; i++)
        bits |= bit_of(bit_at(mask, i));
    return bits;
}

// The place that is this block on the hosts, without slots that none of the hosts has.
static struct place block_place(const struct core_config *config, uint64_t hosts, int slots,
                                int block)
{
    uint64_t devices = 0;
    for (uint64_t left = hosts; left; left &= left - 1)
        devices |= mask_of(config->hosts[__builtin_ctzll(left)].device_count);
    return (struct place){hosts, mask_of(slots) << (block * slots) & devices};
}

// Instances fill all blocks of the first `nodes` hosts, then all blocks of the next ones.
struct place hosts_place(const struct core_config *config, const struct size *size, int instance)
{
    int nodes = size->nodes, slots = size->world_size / nodes, blocks = DEVICES_MAX / slots;
    uint64_t hosts[DEVICES_MAX];
    for (int block = 0; block < blocks; block++)
        hosts[block] = hosts_of_block(config, size, block);
    for (int group = 0; group < HOSTS_MAX; group++)
        for (int block = 0; block < blocks; block++)
            if (bits_in(hosts[block]) / nodes > group && instance-- == 0)
                return block_place(config, bits_from(hosts[block], group * nodes, nodes), slots,
                                   block);
    assert(!"an instance that there is not");
    return (struct place){0};
}

struct core_seat hosts_seat(const struct core *core, const struct pool *pool, int rank)
{
    int ranks = pool->world_size / pool->size->nodes;
    int host = bit_at(pool->place.hosts, rank / ranks);
    uint64_t slots = pool->place.slots & core->devices_all.on[host];
    return (struct core_seat){host, bit_at(slots, rank % ranks % bits_in(slots))};
}

uint64_t hosts_ranks_on(const struct pool *pool, int host)
{
    int ranks = pool->world_size / pool->size->nodes;
    int before = bits_in(pool->place.hosts & mask_of(host));
    return mask_of(ranks) << (before * ranks);
}

// ---- pools that move ------------------------------------------------------------------------

// Bit mask of the hosts on which this block has no unusable device.
static uint64_t hosts_that_serve(const struct core *core, const struct size *size, int block)
{
    int slots = size->world_size / size->nodes;
    uint64_t hosts = hosts_of_block(&core->config, size, block);
    for (uint64_t left = hosts; left; left &= left - 1)
        if (core->unusable.on[__builtin_ctzll(left)] & mask_of(slots) << (block * slots))
            hosts &= ~(left & -left);
    return hosts;
}

struct dealt {
    uint64_t taken[DEVICES_MAX]; // by block: hosts where a pool of the size uses the block
    uint64_t moving;             // bit mask of instances that need another place
};

static bool pool_may_move(const struct pool *pool)
{
    return pool->crew < 0 && (!pool->twin || pool->twin->crew < 0);
}

static int pool_block(const struct pool *pool)
{
    return __builtin_ctzll(pool->place.slots) * pool->size->nodes / pool->world_size;
}

// Pools that have ranks (may_move false) keep their places. In a second pass, pools without ranks
// keep theirs, unless the place has unusable devices or overlaps that of another pool.
static void deal_begin(const struct core *core, const struct size *size, struct dealt *dealt,
                       bool may_move)
{
    for (const struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++) {
        uint64_t *taken = &dealt->taken[pool_block(pool)];
        if (pool_may_move(pool) != may_move || (pool->twin && pool->twin < pool))
            continue;
        if (devices_meet(&core->unusable, &pool->place) || (may_move && *taken & pool->place.hosts))
            dealt->moving |= may_move ? bit_of(pool->instance) : 0;
        else
            *taken |= pool->place.hosts;
    }
}

// Gives the pool a new place. Forgets failures at the old place, unless a pause is under way.
static void pool_settle(struct pool *pool, struct place place)
{
    bool rests = pool->mode == MODE_BACKOFF || (pool->twin && pool->twin->mode == MODE_BACKOFF);
    pool->place = place;
    if (!rests)
        pool->failures = pool->spare_failures = (struct failures){0};
}

static void pool_find_place(const struct core *core, struct pool *pool, struct dealt *dealt)
{
    int nodes = pool->size->nodes, slots = pool->world_size / nodes;
    for (int block = 0; block < DEVICES_MAX / slots; block++) {
        uint64_t hosts = hosts_that_serve(core, pool->size, block) & ~dealt->taken[block];
        if (bits_in(hosts) < nodes)
            continue;
        pool_settle(pool, block_place(&core->config, bits_from(hosts, 0, nodes), slots, block));
        if (pool->twin)
            pool_settle(pool->twin, pool->place);
        dealt->taken[block] |= pool->place.hosts;
        return;
    }
}

void hosts_deal(struct core *core, struct size *size)
{
    struct dealt dealt = {.moving = 0};
    if (size->nodes == 1)
        return;
    deal_begin(core, size, &dealt, false);
    deal_begin(core, size, &dealt, true);
    for (struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
        if (dealt.moving & bit_of(pool->instance) && !(pool->twin && pool->twin < pool))
            pool_find_place(core, pool, &dealt);
}

void hosts_count_unusable(struct core *core)
{
    bool changed = false;
    for (int host = 0; host < core->config.host_count; host++) {
        bool lost = core->hosts_lost & bit_of(host);
        uint64_t unusable = lost ? core->devices_all.on[host]
                                 : core->devices_stuck.on[host] | core->devices_out.on[host];
        changed = changed || unusable != core->unusable.on[host];
        core->unusable.on[host] = unusable;
    }
    core->unusable_changed = core->unusable_changed || changed;
    for (int i = 0; changed && i < core->size_count; i++)
        hosts_deal(core, &core->sizes[i]);
}

// ---- possible pools -------------------------------------------------------------------------

bool hosts_can_serve(const struct core *core, const struct size *size)
{
    int blocks = size->nodes > 1 ? DEVICES_MAX * size->nodes / size->world_size : 0;
    for (int block = 0; size->pool_count > 0 && block < blocks; block++)
        if (bits_in(hosts_that_serve(core, size, block)) >= size->nodes)
            return true;
    for (const struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++)
        if (!devices_meet(&core->unusable, &pool->place))
            return true;
    return false;
}

// Prefers sizes whose ranks do not share devices; among these fewer hosts, among the others more.
static bool size_is_preferred(const struct size *size, const struct size *other)
{
    if (size->shared != other->shared)
        return other->shared;
    return size->shared ? size->nodes > other->nodes : size->nodes < other->nodes;
}

// Returns the preferred size with the world size and implementation of `first`; with to_be_had only
// among sizes with a possible pool. NULL: there is none.
static struct size *size_choose(const struct core *core, const struct size *first, bool to_be_had)
{
    const struct size *best = NULL;
    for (const struct size *size = first;
         size < core->sizes + core->size_count && size->world_size == first->world_size &&
         size->implementation == first->implementation;
         size++)
        if (size->pool_count > 0 && (!to_be_had || hosts_can_serve(core, size)) &&
            (!best || size_is_preferred(size, best)))
            best = size;
    return (struct size *)best;
}

// Returns the size with the given number of nodes, or NULL.
static struct size *size_over(const struct core *core, struct size *first, int nodes)
{
    for (struct size *size = first;
         size < core->sizes + core->size_count && size->world_size == first->world_size &&
         size->implementation == first->implementation;
         size++)
        if (size->nodes == nodes)
            return size;
    return NULL;
}

struct size *hosts_size(const struct core *core, const struct core_request *request)
{
    int w = request->world_size;
    struct size *first = core_size(core, request->implementation, w);
    int nodes = request->nodes            ? request->nodes
                : request->ranks_per_node ? w / request->ranks_per_node
                                          : 0;
    if (nodes > 0)
        return size_over(core, first, nodes);
    if (core->config.host_count == 1)
        return first;
    struct size *size = size_choose(core, first, true);
    size = size ? size : size_choose(core, first, false);
    return size ? size : first;
}

const char *hosts_missing(const struct core *core, const struct size *size)
{
    for (const struct pool *pool = size->pools; pool < size->pools + size->pool_count; pool++) {
        uint64_t lost = pool->place.hosts & core->hosts_lost;
        if (lost)
            return core->config.hosts[__builtin_ctzll(lost)].name;
    }
    return NULL;
}

struct size *hosts_other_size(const struct core *core, const struct size *size)
{
    const struct size *first = core_size(core, size->implementation, size->world_size);
    return hosts_can_serve(core, size) ? NULL : size_choose(core, first, true);
}
