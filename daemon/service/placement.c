// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/placement.h"

void placement_make(const struct core *core, const struct wire_description *description,
                    const struct action *start, struct placement *placement)
{
    for (int rank = 0; rank < start->world_size; rank++) {
        struct core_seat seat = core_seat(core, start->pool, rank);
        placement->hosts[rank] = seat.host;
        placement->slots[rank] = seat.device;
        placement->gpus[rank] =
            seat.device < description->gpu_count ? description->gpus[seat.device].index : -1;
    }
    placement->start =
        (struct crew_start){.generation = start->generation,
                            .implementation = start->implementation,
                            .world_size = start->world_size,
                            .devices = description->gpu_count > 0 ? placement->gpus : NULL,
                            .hosts = placement->hosts,
                            .slots = placement->slots};
}
