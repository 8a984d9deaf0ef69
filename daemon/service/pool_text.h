// SPDX-License-Identifier: Apache-2.0
// Texts about pools from data that the core does not have: processes, and GPUs by index.
#ifndef CPATTN_DAEMON_SERVICE_POOL_TEXT_H
#define CPATTN_DAEMON_SERVICE_POOL_TEXT_H

#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "proto/wire.h"

// Converts a set of the core's devices to GPUs by index; without GPUs returns it unchanged.
uint64_t pool_text_devices(const struct wire_description *d, uint64_t places);

// " of guest NAME", or "" for the daemon's own ranks. `crew` may be NULL.
void pool_text_guest(const struct crew *crew, char *text, size_t size);

// "; it wrote: " with the last lines of a rank's stderr, or "" if there are none.
void pool_text_wrote(const struct rank_process *r, char *text, size_t size);

// Says why a lost rank was not ready: UNAVAILABLE.
void pool_text_not_ready(const struct crew *crew, int rank, struct error *error);

// Says why a pool is about to be killed if the reason is a living rank that has not become ready;
// else leaves the error unchanged.
void pool_text_late(const struct crew *crew, struct error *error);

// Says why no pool of the world size is available: UNAVAILABLE.
void pool_text_stuck(struct crews *crews, const struct wire_description *d, int world_size,
                     const struct core_stuck *stuck, struct error *error);

// Names the remaining ranks of a pool that has just become stuck, for the log.
void pool_text_log_stuck(struct crews *crews, const struct wire_description *d,
                         const struct action *stuck);

// Completes the pools of a status in place: fills in names of guests and how ranks exchange,
// converts devices to GPUs, and replaces the core's reason for a failed start by that of
// `start_errors` (by implementation and world size) if there is one.
void pool_text_status(struct crews *crews, const struct wire_description *d,
                      struct error (*start_errors)[WORLD_SIZE_MAX + 1], struct wire_pool *pools,
                      int count);

#endif
