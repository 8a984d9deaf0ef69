// SPDX-License-Identifier: Apache-2.0
// Compares the settings that only a restart can change.
#include <string.h>

#include "daemon/settings/settings.h"

int settings_fixed_differences(const struct settings *a, const struct settings *b,
                               const char *names[SETTINGS_FIXED])
{
    const struct {
        const char *name;
        bool same;
    } fixed[] = {
        {"socket", strcmp(a->socket, b->socket) == 0},
        {"listen", strcmp(a->listen.text, b->listen.text) == 0},
        {"hosts", host_list_same(&a->hosts.others, &b->hosts.others)},
        {"agents-listen", strcmp(a->hosts.listen_text, b->hosts.listen_text) == 0},
        {"mesh-port", a->hosts.mesh_port == b->hosts.mesh_port},
        {"metrics", strcmp(a->metrics.text, b->metrics.text) == 0},
        {"backend", a->backend == b->backend},
        {"devices", a->devices.count == b->devices.count && a->devices.named == b->devices.named},
        {"ranks-per-gpu", a->ranks_per_gpu == b->ranks_per_gpu},
        {"spares", a->spares == b->spares},
        {"queue-max", a->queue_max == b->queue_max},
        {"rank-user", rank_user_same(&a->rank_user, &b->rank_user)},
        {"rank-filter", a->rank_filter == b->rank_filter},
        {"rank-memory", a->rank_memory_bytes == b->rank_memory_bytes},
        {"start-timeout", a->start_timeout_ns == b->start_timeout_ns},
        {"kill-timeout", a->kill_timeout_ns == b->kill_timeout_ns},
        {"client-timeout", a->client_timeout_ns == b->client_timeout_ns},
        {"providers", provider_list_same(&a->providers, &b->providers)},
        {"guests", guests_same(&a->guests, &b->guests)},
        {"rank-program", strcmp(a->rank_program, b->rank_program) == 0},
        {"cuda-rank-program", strcmp(a->cuda_rank_program, b->cuda_rank_program) == 0},
    };
    _Static_assert(sizeof(fixed) / sizeof(fixed[0]) == SETTINGS_FIXED, "the caller has room");
    int count = 0;
    for (int i = 0; i < SETTINGS_FIXED; i++)
        if (!fixed[i].same)
            names[count++] = fixed[i].name;
    return count;
}
