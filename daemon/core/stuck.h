// SPDX-License-Identifier: Apache-2.0
// Ranks that were killed and are not reaped: what they keep from use.
#ifndef CPATTN_DAEMON_CORE_STUCK_H
#define CPATTN_DAEMON_CORE_STUCK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/devices.h"
#include "daemon/core/request.h"

struct core;
struct pool;
struct size;

// Where those of its ranks sit that are not reaped: the hosts, and all slots on any of them.
struct place stuck_place(const struct core *core, const struct pool *pool);

// Counts anew what the pools that are STUCK keep, and the devices that are of no use. To be called
// when one has become so or has lost a rank, or when a host is lost or back.
void stuck_count(struct core *core);

// Whether a pool of the size can be had: nothing is stuck on its devices.
bool stuck_leaves(const struct core *core, const struct size *size);

// Whether no pool of the size can be had because of ranks that are stuck; `stuck` is one of them
// then, else untouched.
bool stuck_find(const struct core *core, const struct size *size, struct core_stuck *stuck);

// Answers what waits for a size of which no pool can be had because of ranks that are stuck.
void stuck_refuse_waiting(struct core *core, struct size *size);

#endif
