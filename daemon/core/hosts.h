// SPDX-License-Identifier: Apache-2.0
// Hosts: those that are lost, and the places of pools on those that are not.
//
// Pools of one host have places of their own for good. A pool that is spread over hosts has no
// place of its own: while it has no ranks, it moves from devices that are out of use to others that
// no pool of its size has. Pools of a size keep off each other's devices as long as there are
// enough hosts.
#ifndef CPATTN_DAEMON_CORE_HOSTS_H
#define CPATTN_DAEMON_CORE_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/devices.h"

struct core;
struct core_config;
struct core_request;
struct error;
struct pool;
struct size;

// How many pools of world_size / nodes ranks on each of `nodes` hosts can work side by side.
int hosts_instances(const struct core_config *config, int world_size, int nodes);
// Where the given one of them is while no host is lost.
struct place hosts_place(const struct core_config *config, int world_size, int nodes, int instance);

// Counts anew the devices that nothing may be started on: to be called when hosts are lost or back,
// or devices are stuck or out of use, or no longer. Pools move then.
void hosts_count_unusable(struct core *core);

// Jobs that may wait for pools on other hosts do, where theirs cannot be had any more.
void hosts_move_waiting(struct core *core);

// Finds places for the pools of the size that have no ranks, where they must move.
void hosts_deal(struct core *core, struct size *size);

// The ranks of the pool on a host, which must be one of its hosts.
uint64_t hosts_ranks_on(const struct pool *pool, int host);

// Whether pools of the size can be had as soon as their devices are free: where a pool is spread
// over hosts, it may move.
bool hosts_can_serve(const struct core *core, const struct size *size);

// The size that a request belongs to: the first that can be had now, in the order of preference of
// core_request, else the first. It may have no pools.
struct size *hosts_size(const struct core *core, const struct core_request *request);

// The name of a host that is lost and keeps the size from its pools, or else NULL.
const char *hosts_missing(const struct core *core, const struct size *size);

#endif
