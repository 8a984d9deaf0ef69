// SPDX-License-Identifier: Apache-2.0
// Texts about pools from data that the core does not have: processes, and GPUs by index.
#ifndef CPATTN_DAEMON_SERVICE_POOL_TEXT_H
#define CPATTN_DAEMON_SERVICE_POOL_TEXT_H

#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "proto/wire.h"

// The GPUs in a set of the core's devices, by index; without GPUs the devices themselves.
uint64_t pool_text_devices(const struct wire_description *d, uint64_t places);

// " of guest NAME", or "" for ranks of our own. `crew` may be NULL.
void pool_text_guest(const struct crew *crew, char *text, size_t size);

// "; it wrote: " with the last lines of a rank's stderr, or "" where there are none.
void pool_text_wrote(const struct rank_process *r, char *text, size_t size);

// Why a rank that is lost was not ready: UNAVAILABLE.
void pool_text_not_ready(const struct crew *crew, int rank, struct error *error);

// Of a pool that is about to be killed: why, where it is because a rank that lives has not become
// ready; else the error is left alone.
void pool_text_late(const struct crew *crew, struct error *error);

// Why no pool of the world size can be had: UNAVAILABLE.
void pool_text_stuck(struct crews *crews, const struct wire_description *d, int world_size,
                     const struct core_stuck *stuck, struct error *error);

// What is left in a pool that has just got stuck, for the log.
void pool_text_log_stuck(struct crews *crews, const struct wire_description *d,
                         const struct action *stuck);

// In place: guests get their names, devices become GPUs, and where `start_errors`, by
// implementation and world size, know better than the core why a pool does not come up, they say
// so.
void pool_text_status(const struct wire_description *d,
                      struct error (*start_errors)[WORLD_SIZE_MAX + 1], struct wire_pool *pools,
                      int count);

#endif
