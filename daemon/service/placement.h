// SPDX-License-Identifier: Apache-2.0
// The hosts and devices of a pool's ranks, as the core has assigned them.
#ifndef CPATTN_DAEMON_SERVICE_PLACEMENT_H
#define CPATTN_DAEMON_SERVICE_PLACEMENT_H

#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "proto/wire.h"

struct placement {
    struct crew_start start; // points to the arrays below
    int hosts[WORLD_SIZE_MAX], slots[WORLD_SIZE_MAX], gpus[WORLD_SIZE_MAX]; // by rank
};

// Fills in the placement of a START action. The struct must not move afterwards.
void placement_make(const struct core *core, const struct wire_description *description,
                    const struct action *start, struct placement *placement);

#endif
