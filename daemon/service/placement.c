// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/placement.h"

void placement_make(const struct core *core, const struct wire_description *d,
                    const struct action *a, struct placement *p)
{
    for (int rank = 0; rank < a->world_size; rank++) {
        struct core_seat seat = core_seat(core, a->pool, rank);
        p->hosts[rank] = seat.host;
        p->slots[rank] = seat.device;
        p->gpus[rank] = seat.device < d->gpu_count ? d->gpus[seat.device].index : -1;
    }
    p->start = (struct crew_start){.generation = a->generation,
                                   .implementation = a->implementation,
                                   .world_size = a->world_size,
                                   .devices = d->gpu_count > 0 ? p->gpus : NULL,
                                   .hosts = p->hosts,
                                   .slots = p->slots};
}
