// SPDX-License-Identifier: Apache-2.0
// The library with the CUDA engine. libcpattn-guest loads it if the rank has a GPU.
#include <stdlib.h>
#include <string.h>

#include "common/cuda/device_arena.h"
#include "guest/state.h"
#include "rank/cuda/engine.h"

// The engine restricts the visible devices to those of the pool before it starts CUDA. If the
// guest's code has started CUDA before, all devices are visible, and the rank's device has another
// number: FAILED_PRECONDITION.
static enum status devices_check(struct error *error)
{
    int seen = 0, wanted = 1;
    for (const char *at = getenv("CUDA_VISIBLE_DEVICES"); at && (at = strchr(at, ',')); at++)
        wanted++;
    if (cudaGetDeviceCount(&seen) != cudaSuccess || seen <= wanted)
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "the guest has used CUDA before it was served and sees %d GPUs, its "
                     "pool has %d; call cpattn.guest.serve() or cpattn_guest_main() first",
                     seen, wanted);
}

static enum status create(const struct engine_setup *setup, struct engine **engine,
                          struct error *error)
{
    enum status status = engine_cuda.create(setup, engine, error);
    if (status != STATUS_OK)
        return status;
    status = devices_check(error);
    if (status == STATUS_OK)
        return STATUS_OK;
    (*engine)->ops->destroy(*engine);
    *engine = NULL;
    return status;
}

static const struct engine_kind base = {.create = create};

static enum status guest_gpu_create(const struct engine_setup *setup, struct engine **engine,
                                    struct error *error)
{
    struct engine_setup bare = *setup;
    bare.guest = true;
    return guest_engine_create(&base, &bare, engine, error);
}

static const struct engine_kind kind = {
    .program = "guest",
    .arguments = " DEVICE",
    .argument_min = 1,
    .argument_max = 1,
    .create = guest_gpu_create,
};

const struct engine_kind *const engine_guest_gpu = &kind;

int guest_device(void)
{
    int device = 0;
    return cudaGetDevice(&device) == cudaSuccess ? device : -1;
}
