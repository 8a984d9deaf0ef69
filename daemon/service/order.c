// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/order.h"

#include <inttypes.h>
#include <stdio.h>

static int number_of(const struct wire_description *d, int place)
{
    return d->gpu_count > 0 ? d->gpus[place].index : place;
}

static enum status device_find(const struct wire_description *d, int device, uint64_t *bit,
                               struct error *error)
{
    char names[4 * DEVICES_MAX + 1] = "";
    size_t used = 0;
    for (int place = 0; place < d->devices; place++) {
        if (number_of(d, place) == device) {
            *bit = UINT64_C(1) << place;
            return STATUS_OK;
        }
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%d", place > 0 ? ", " : "",
                                 number_of(d, place));
    }
    return error_set(error, STATUS_INVALID_ARGUMENT, "device is %d; this daemon has %s", device,
                     names);
}

enum status order_do(struct core *core, uint64_t now_ns, const struct wire_description *description,
                     const struct wire_order *order, uint64_t *count, struct error *error)
{
    uint64_t bit = 0, out = core_devices_out(core, 0);
    if (order->kind == ORDER_UNPOISON) {
        *count = (uint64_t)core_unpoison(core, now_ns);
        return STATUS_OK;
    }
    enum status status = device_find(description, order->device, &bit, error);
    if (status != STATUS_OK)
        return status;
    out = order->kind == ORDER_DRAIN_DEVICE ? out | bit : out & ~bit;
    core_set_devices_out(core, now_ns, 0, out);
    *count = (uint64_t)__builtin_popcountll(out);
    return STATUS_OK;
}
