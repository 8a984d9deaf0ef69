// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/rank_host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/pool/squad.h"
#include "daemon/process/spawn.h"
#include "daemon/process/strays.h"

// Pause between attempts of rank_host_fini() to end strays.
#define STRAYS_PAUSE_MS 2

// The ranks of one pool of the daemon's own program that may start at the same time: as many as
// there are cores, and at least this many. More ranks would be no sooner ready, and compete with
// the daemon for its core.
#define STARTING_MIN 2

// ---- the starter -------------------------------------------------------------------------------

// The starter's answer. Reaps a process that could not execute its program. Kills a process whose
// squad is destroyed; it is reaped as a stray.
static void on_started(void *context, const struct starter_order *order, pid_t pid,
                       const struct error *error)
{
    struct rank_host *host = context;
    struct squad *found = NULL;
    LIST_FOREACH (node, &host->squads) {
        struct squad *squad = LIST_ENTRY(node, struct squad, node);
        if (squad->ticket == order->ticket)
            found = squad;
    }
    if (error->status != STATUS_OK && pid > 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    else if (!found && pid > 0)
        kill(pid, SIGKILL);
    if (found)
        squad_made(found, pid, error);
}

static struct squad *find_making(const struct rank_host *host, uint64_t ticket_max)
{
    LIST_FOREACH (node, &host->squads) {
        struct squad *squad = LIST_ENTRY(node, struct squad, node);
        if (squad->making && squad->ticket <= ticket_max)
            return squad;
    }
    return NULL;
}

// Fails the unanswered requests of all squads. Squads created during these calls have higher
// tickets and use a new starter; they are left alone.
static void on_starter_lost(void *context, const struct error *error)
{
    struct rank_host *host = context;
    uint64_t ticket_max = host->tickets;
    struct squad *squad;
    while ((squad = find_making(host, ticket_max)))
        squad_made(squad, 0, error);
}

// ---- the host ----------------------------------------------------------------------------------

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
    host->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (!host->environment || !host->guest_environment || host->null_fd < 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory or descriptor for the pools");
    const struct starter_config starter = {
        .program = program,
        .guests = guests,
        .confinement = confinement,
        .guest_confinement = &host->guest_confinement,
        .environment = host->environment,
        .guest_environment = host->guest_environment,
        .handler = {host, on_started, on_starter_lost},
    };
    return starter_create(loop, &starter, &host->starter, error);
}

static bool pid_is_known(const void *context, pid_t pid)
{
    const struct rank_host *host = context;
    if (host->starter && pid == starter_pid(host->starter))
        return true;
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
    if (host->starter && starter_is_busy(host->starter))
        return 0;
    return strays_end(host->kills_strays, pid_is_known, host);
}

// Ends strays repeatedly: the children of a rank become children of this process when it is reaped.
void rank_host_fini(struct rank_host *host, uint64_t deadline_ns)
{
    starter_destroy(host->starter);
    host->starter = NULL;
    while (rank_host_reap_strays(host) > 0 && clock_now_ns() < deadline_ns)
        poll(NULL, 0, STRAYS_PAUSE_MS);
    spawn_environment_destroy(host->environment);
    spawn_environment_destroy(host->guest_environment);
    if (host->null_fd >= 0)
        close(host->null_fd);
}
