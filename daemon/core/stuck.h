// SPDX-License-Identifier: Apache-2.0
// Stuck ranks, which were killed and are not reaped, and the devices that they block.
#ifndef CPATTN_DAEMON_CORE_STUCK_H
#define CPATTN_DAEMON_CORE_STUCK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/devices.h"
#include "daemon/core/request.h"

struct core;
struct pool;
struct size;

// Devices of the pool's ranks that are not reaped: their hosts, and the union of their slots.
struct place stuck_place(const struct core *core, const struct pool *pool);

// Recomputes the masks of devices with stuck ranks and of unusable devices. Call when a pool
// becomes STUCK, when one of its ranks is reaped, and when a host is lost or back.
void stuck_count(struct core *core);

// True if some pool of the size has no stuck rank on its devices.
bool stuck_leaves(const struct core *core, const struct size *size);

// True if stuck ranks block every pool of the size; then sets *stuck to one of them.
bool stuck_find(const struct core *core, const struct size *size, struct core_stuck *stuck);

// Answers the jobs of a size if stuck ranks block all its pools.
void stuck_refuse_waiting(struct core *core, struct size *size);

#endif
