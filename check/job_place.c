// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "check/job_judge.h"
#include "judge/collective.h"
#include "judge/linear_view.h"

void job_place_begin(struct job_place *place, const struct check_device *device,
                     struct device_judge *device_judge)
{
    *place = (struct job_place){.work = {&collective_judge_host, &linear_tools_host, NULL, -1},
                                .device = device,
                                .device_judge = device_judge};
    if (device)
        device->jobs_begin(device_judge, &place->work);
}

enum status job_place_end(struct job_place *place, enum status status, struct error *error)
{
    struct error late;
    enum status ended = place->device
                            ? place->device->jobs_end(place->device_judge, &place->work, &late)
                            : STATUS_OK;
    free(place->room);
    place->room = NULL;
    if (status == STATUS_OK && ended != STATUS_OK)
        *error = late;
    return status == STATUS_OK ? ended : status;
}

enum status job_place_room(struct job_place *place, size_t bytes, void **room, struct error *error)
{
    if (place->device)
        return place->device->jobs_room(place->device_judge, bytes, room, error);
    free(place->room);
    *room = place->room = malloc(bytes + 1);
    return *room ? STATUS_OK
                 : error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the judge of a job");
}

enum status job_place_digest(struct job_place *place, const void *data, size_t bytes,
                             uint64_t *digest, struct error *error)
{
    void *spare = NULL;
    enum status status = STATUS_OK;
    if (place->device && (uintptr_t)data % 8 != 0)
        status = job_place_room(place, bytes, &spare, error);
    return status == STATUS_OK ? place->work.collective->digest(place->work.queue, data, bytes,
                                                                spare, digest, error)
                               : status;
}
