// SPDX-License-Identifier: Apache-2.0
// Hosts: which are lost, and the places of pools on the others.
//
// A pool of one host has a fixed place. A pool that is spread over hosts has none: while it has no
// ranks, it moves from devices that are out of use to others that no pool of its size has. Pools of
// one size use different devices as long as there are enough hosts.
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

// How many pools of world_size / nodes ranks on each of `nodes` hosts can work side by side. Those
// of guests (an implementation other than 0) are on the first host alone.
int hosts_instances(const struct core_config *config, int implementation, int world_size,
                    int nodes);
// True if too few hosts have enough devices for the ranks that the size has on each host.
bool hosts_share_devices(const struct core_config *config, const struct size *size);
// The place of an instance while no host is lost.
struct place hosts_place(const struct core_config *config, const struct size *size, int instance);

// Recomputes the mask of unusable devices, and moves pools. Call it when hosts are lost or back, or
// when devices become stuck, out of use or usable.
void hosts_count_unusable(struct core *core);

// Finds new places for the pools of the size that must move and have no ranks.
void hosts_deal(struct core *core, struct size *size);

// See core_seat().
struct core_seat hosts_seat(const struct core *core, const struct pool *pool, int rank);

// The ranks of the pool on a host, which must be one of its hosts.
uint64_t hosts_ranks_on(const struct pool *pool, int host);

// True if pools of the size are possible once their devices are free. A pool that is spread over
// hosts may move for that.
bool hosts_can_serve(const struct core *core, const struct size *size);

// The size that a request belongs to: the first that can be had now, in the order of preference of
// core_request, else the first. It may have no pools.
struct size *hosts_size(const struct core *core, const struct core_request *request);

// If no pool of the size is possible: another size for the same ranks of which there can be one, or
// NULL.
struct size *hosts_other_size(const struct core *core, const struct size *size);

// The name of a lost host that makes all pools of the size impossible, or NULL.
const char *hosts_missing(const struct core *core, const struct size *size);

#endif
