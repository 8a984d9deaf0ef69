// SPDX-License-Identifier: Apache-2.0
// Compares the settings that only a restart can change.
#include <string.h>

#include "daemon/settings/settings.h"

const char *settings_fixed_difference(const struct settings *a, const struct settings *b)
{
    if (strcmp(a->socket, b->socket) != 0)
        return "socket";
    if (strcmp(a->listen.text, b->listen.text) != 0)
        return "listen";
    if (!host_list_same(&a->hosts.others, &b->hosts.others))
        return "hosts";
    if (strcmp(a->hosts.listen_text, b->hosts.listen_text) != 0)
        return "agents-listen";
    if (strcmp(a->hosts.token_file, b->hosts.token_file) != 0)
        return "agents-token-file";
    if (a->hosts.mesh_port != b->hosts.mesh_port)
        return "mesh-port";
    if (strcmp(a->metrics.text, b->metrics.text) != 0)
        return "metrics";
    if (a->backend != b->backend)
        return "backend";
    if (a->devices.count != b->devices.count || a->devices.named != b->devices.named)
        return "devices";
    if (a->ranks_per_gpu != b->ranks_per_gpu)
        return "ranks-per-gpu";
    if (a->spares != b->spares)
        return "spares";
    if (a->queue_max != b->queue_max)
        return "queue-max";
    if (!rank_user_same(&a->rank_user, &b->rank_user))
        return "rank-user";
    if (a->rank_filter != b->rank_filter)
        return "rank-filter";
    if (a->rank_memory_bytes != b->rank_memory_bytes)
        return "rank-memory";
    if (a->start_timeout_ns != b->start_timeout_ns)
        return "start-timeout";
    if (a->kill_timeout_ns != b->kill_timeout_ns)
        return "kill-timeout";
    if (a->client_timeout_ns != b->client_timeout_ns)
        return "client-timeout";
    if (!provider_list_same(&a->providers, &b->providers))
        return "provider";
    if (!guests_same(&a->guests, &b->guests))
        return "guests";
    if (strcmp(a->rank_program, b->rank_program) != 0)
        return "rank-program";
    return strcmp(a->cuda_rank_program, b->cuda_rank_program) != 0 ? "cuda-rank-program" : NULL;
}
