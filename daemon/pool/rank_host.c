// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/rank_host.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/process/spawn.h"
#include "daemon/process/strays.h"

#define STRAYS_PAUSE_MS 2

// Of our own ranks so many at least may be on their way to their first word at a time, and as many
// as there are cores: more of them would keep the daemon from its core, and none would be ready
// sooner.
#define STARTING_MIN 2

enum status rank_host_init(struct rank_host *host, struct ev_loop *loop, const char *program,
                           const struct guests *guests, const struct confinement *confinement,
                           struct error *error)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    memset(host, 0, sizeof(*host));
    host->loop = loop;
    host->program = program;
    host->guests = guests;
    host->confinement = confinement;
    host->guest_confinement = *confinement;
    host->guest_confinement.is_guest = true;
    host->kills_strays = strays_are_ours();
    host->starting_max = cores > STARTING_MIN ? (int)cores : STARTING_MIN;
    list_init(&host->squads);
    host->environment = spawn_environment_create(false);
    host->guest_environment = spawn_environment_create(true);
    host->null_fd = spawn_fd_lift(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!host->environment || !host->guest_environment || host->null_fd < 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory or descriptor for the pools");
    return STATUS_OK;
}

static bool pid_is_rank(const void *context, pid_t pid)
{
    const struct rank_host *host = context;
    LIST_FOREACH (node, &host->squads) {
        const struct squad *squad = LIST_ENTRY(node, struct squad, node);
        for (int rank = 0; rank < squad->world_size; rank++)
            if (squad->children[rank].pid == pid)
                return true;
    }
    return false;
}

int rank_host_reap_strays(struct rank_host *host)
{
    return strays_end(host->kills_strays, pid_is_rank, host);
}

// Those of ranks that have just been reaped come to us now.
void rank_host_fini(struct rank_host *host, uint64_t deadline_ns)
{
    while (rank_host_reap_strays(host) > 0 && clock_now_ns() < deadline_ns)
        poll(NULL, 0, STRAYS_PAUSE_MS);
    spawn_environment_destroy(host->environment);
    spawn_environment_destroy(host->guest_environment);
    if (host->null_fd >= 0)
        close(host->null_fd);
}
