// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/order.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/plural.h"
#include "daemon/service/pool_text.h"

static enum status device_find(const struct service_config *config, const struct wire_order *order,
                               uint64_t *bit, struct error *error)
{
    char names[4 * DEVICES_MAX + 1] = "";
    size_t used = 0;
    int host = order->host;
    if (host >= config->host_count)
        return error_set(error, STATUS_INVALID_ARGUMENT, "host is %d; this daemon has %d", host,
                         config->host_count);
    for (int place = 0; place < config->hosts[host].device_count; place++) {
        int number = pool_text_device(config, host, place);
        if (number == order->device) {
            *bit = UINT64_C(1) << place;
            return STATUS_OK;
        }
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%d", place > 0 ? ", " : "",
                                 number);
    }
    return error_set(error, STATUS_INVALID_ARGUMENT, "device is %d; %s has device%s %s",
                     order->device, host == 0 ? "this daemon" : config->hosts[host].name,
                     plural(config->hosts[host].device_count), names);
}

enum status order_do(struct core *core, uint64_t now_ns, const struct service_config *config,
                     const struct wire_order *order, uint64_t *count, struct error *error)
{
    uint64_t bit = 0, out;
    if (order->kind == ORDER_UNPOISON) {
        *count = (uint64_t)core_unpoison(core, now_ns);
        return STATUS_OK;
    }
    enum status status = device_find(config, order, &bit, error);
    if (status != STATUS_OK)
        return status;
    out = core_devices_out(core, order->host);
    out = order->kind == ORDER_DRAIN_DEVICE ? out | bit : out & ~bit;
    core_set_devices_out(core, now_ns, order->host, out);
    *count = 0;
    for (int host = 0; host < config->host_count; host++)
        *count += (uint64_t)__builtin_popcountll(core_devices_out(core, host));
    return STATUS_OK;
}
