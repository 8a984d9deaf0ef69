// SPDX-License-Identifier: Apache-2.0
// Hosts: unusable devices, and the places of pools.
//
// A pool on one host has a fixed place. A pool that is spread over hosts can move: while it has no
// ranks, it moves from unusable devices to others that no pool of its size has. Pools of one size
// use different devices as long as there are enough hosts.
#ifndef CPATTN_DAEMON_CORE_HOSTS_H
#define CPATTN_DAEMON_CORE_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/action.h"
#include "daemon/core/devices.h"

struct core;
struct core_config;
struct core_request;
struct error;
struct pool;
struct size;

// Returns the number of pools with world_size / nodes ranks on each of `nodes` hosts that can work
// side by side. Pools of guests (implementation > 0) use the first host only.
int hosts_instances(const struct core_config *config, int implementation, int world_size,
                    int nodes);
// True if ranks must share devices, because too few hosts have a device for each of their ranks.
bool hosts_share_devices(const struct core_config *config, const struct size *size);
// The initial place of an instance, while all devices are usable.
struct place hosts_place(const struct core_config *config, const struct size *size, int instance);

// Recomputes the mask of unusable devices, and moves pools. Call it when hosts are lost or back, or
// when devices become stuck, out of use or usable.
void hosts_count_unusable(struct core *core);

// Finds new places for the pools of the size that must move and have no ranks.
void hosts_deal(struct core *core, struct size *size);

// See core_seat().
struct core_seat hosts_seat(const struct core *core, const struct pool *pool, int rank);

// Bit mask of the ranks of the pool on a host, which must be one of its hosts.
uint64_t hosts_ranks_on(const struct pool *pool, int host);

// True if a pool of the size can have a place without unusable devices, whether other pools use
// them or not. A pool that is spread over hosts may have to move.
bool hosts_can_serve(const struct core *core, const struct size *size);

// Returns the size of a request. If the request leaves the number of hosts open: the preferred size
// (core_request) with a possible pool, else the preferred size. The size may have no pools. NULL:
// there is no size with the number of hosts that the request names.
struct size *hosts_size(const struct core *core, const struct core_request *request);

// If no pool of the size is possible: returns another size for the same ranks with a possible pool.
// Else, or if there is none, NULL.
struct size *hosts_other_size(const struct core *core, const struct size *size);

// The name of a lost host in the place of a pool of the size, or NULL.
const char *hosts_missing(const struct core *core, const struct size *size);

#endif
