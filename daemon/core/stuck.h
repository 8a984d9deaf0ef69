// SPDX-License-Identifier: Apache-2.0
// Ranks that were killed and are not reaped: what they keep from use.
#ifndef CPATTN_DAEMON_CORE_STUCK_H
#define CPATTN_DAEMON_CORE_STUCK_H

#include <stdbool.h>
#include <stdint.h>

struct core;
struct pool;
struct size;

// The device that a rank of the pool sits on: see core_stuck.
int stuck_device(const struct pool *pool, int rank);
// Those of its ranks that are not reaped.
uint64_t stuck_devices(const struct pool *pool);

// Counts anew what the pools that are STUCK keep. To be called when one has become so, or has lost
// a rank.
void stuck_count(struct core *core);

// Whether a pool of the size can be had: nothing is stuck on its devices.
bool stuck_leaves(const struct core *core, const struct size *size);

// Answers what waits for a size of which no pool can be had because of ranks that are stuck.
void stuck_refuse_waiting(struct core *core, struct size *size);

#endif
