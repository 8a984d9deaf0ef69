// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/core_config.h"

#include <string.h>

#include "common/clock.h"
#include "daemon/settings/guests.h"

// Delay before a report of a lost peer counts: a rank reports the end of file of its peer before
// the kernel reports the peer's death, which is the better cause.
#define PEER_GRACE_NS (250 * NS_PER_MS)

// Delay of a spare's start, in which the first cases of other world sizes arrive: their pools
// start first.
#define SPARE_DELAY_NS (2 * NS_PER_S)

struct core *core_config_make(const struct service_config *config)
{
    struct core_config core = {
        .host_count = config->host_count,
        .ranks_per_device = config->ranks_per_device,
        .spares = config->spares,
        .spare_delay_ns = SPARE_DELAY_NS,
        .queue_max = config->description.queue_max,
        .user_queue_max = config->user_queue_max,
        .user = config->user,
        .timeout_max_ns = config->description.timeout_max_ns,
        .memory_max = (uint64_t)config->description.memory_bytes_max,
        .ranks_max = RANKS_MAX,
        .start_timeout_ns = config->start_timeout_ns,
        .peer_grace_ns = PEER_GRACE_NS,
        .idle_timeout_ns = config->idle_timeout_ns,
        .kill_timeout_ns = config->kill_timeout_ns,
        .guest_count = config->guests->count,
    };
    for (int i = 0; i < config->host_count; i++) {
        core.hosts[i].device_count = config->hosts[i].device_count;
        core.hosts[i].away = i > 0;
        memcpy(core.hosts[i].name, config->hosts[i].name, sizeof(core.hosts[i].name));
    }
    for (int i = 0; i < config->guests->count; i++)
        core.guests[i] = (struct core_guest){config->guests->list[i].world_sizes,
                                             config->guests->list[i].start_timeout_ns};
    return core_create(&core);
}

void description_set_timeouts(struct wire_description *description, uint64_t timeout_max_ns)
{
    description->timeout_max_ns = timeout_max_ns;
    description->timeout_default_ns =
        timeout_max_ns < TIMEOUT_DEFAULT_NS ? timeout_max_ns : TIMEOUT_DEFAULT_NS;
}
