// SPDX-License-Identifier: Apache-2.0
// Texts about pools, with data that the core does not have: processes, stderr, and GPUs by index.
#ifndef CPATTN_DAEMON_SERVICE_POOL_TEXT_H
#define CPATTN_DAEMON_SERVICE_POOL_TEXT_H

#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "daemon/service/service_config.h"
#include "proto/wire.h"

// Returns the number by which users know a device, which the core knows by its place on its host:
// the index of a GPU of this host. Devices of other hosts are numbered from 0, because their agents
// choose the devices; so are cores.
int pool_text_device(const struct service_config *config, int host, int place);

// Converts a bit mask of places to one of these numbers. A pool over several hosts has the same
// places on each; the numbers are those of the first of `hosts`.
uint64_t pool_text_devices(const struct service_config *config, uint64_t hosts, uint64_t places);

// Writes " of guest NAME", or "" for the daemon's own ranks. `crew` may be NULL.
void pool_text_guest(const struct crew *crew, char *text, size_t size);

// Writes "; it wrote: " with the last lines of a rank's stderr, or "" if there are none.
void pool_text_wrote(const struct rank_process *r, char *text, size_t size);

// Sets the error to UNAVAILABLE: a rank failed or ended before it was ready, and how.
void pool_text_not_ready(const struct crew *crew, int rank, struct error *error);

// Call before a pool is killed. If its only fault is that a living rank has not become ready in
// time, sets the error to UNAVAILABLE and names the rank; else leaves the error unchanged.
void pool_text_late(const struct crew *crew, struct error *error);

// Sets the error to UNAVAILABLE: a stuck rank blocks the pools of the world size.
void pool_text_stuck(struct crews *crews, const struct service_config *config, int world_size,
                     const struct core_stuck *stuck, struct error *error);

// Logs a pool that has become stuck, with its devices and one of its remaining ranks.
void pool_text_log_stuck(struct crews *crews, const struct service_config *config,
                         const struct action *stuck);

// Completes the pools of a status in place: fills in names of guests and how ranks exchange data,
// and converts devices as pool_text_devices(). If `start_errors` (by implementation and world size)
// has a reason for a failed start, it replaces the core's.
void pool_text_status(struct crews *crews, const struct service_config *config,
                      struct error (*start_errors)[WORLD_SIZE_MAX + 1], struct wire_pool *pools,
                      int count);

#endif
