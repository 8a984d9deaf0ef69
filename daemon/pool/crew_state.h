// SPDX-License-Identifier: Apache-2.0
// State of the rank processes: of each process, of the ranks of a pool, of all pools.
#ifndef CPATTN_DAEMON_POOL_CREW_STATE_H
#define CPATTN_DAEMON_POOL_CREW_STATE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/channel.h"
#include "common/rank_end.h"
#include "common/report.h"
#include "common/status.h"
#include "daemon/pool/mesh.h"
#include "daemon/pool/stderr_pipe.h"
#include "daemon/process/confine.h"
#include "daemon/settings/guests.h"
#include "plan/kind.h"

// Callbacks for events of ranks, named like the events of the core that they cause.
struct crew_handler {
    void *context;
    // The rest of a start has failed; no rank is alive.
    void (*not_started)(void *context, int pool, uint32_t generation, const struct error *error);
    void (*ready)(void *context, int pool, uint32_t generation, int rank);
    void (*reported)(void *context, int pool, uint32_t generation, int rank, uint64_t job);
    void (*failed)(void *context, int pool, uint32_t generation, int rank, int kind, int peer);
    void (*ending)(void *context, int pool, uint32_t generation, int rank,
                   const struct rank_end *end);
    void (*exited)(void *context, int pool, uint32_t generation, int rank,
                   const struct rank_end *end);
};

struct crew;
struct rank_process {
    struct crew *crew;
    int rank;
    int device; // its GPU, or -1
    pid_t pid;  // 0: not started, or reaped
    int pidfd, channel;
    ev_io exit_watcher, channel_watcher;
    bool ending;      // told
    ev_timer silence; // the channel is closed, the process not yet seen dead
    ev_timer reap;    // the process has ended and cannot be reaped yet
    struct stderr_pipe stderr_pipe;
    bool said_hello, said_ready;
    bool reported;               // the current job
    struct rank_failure failure; // what it said, or what is held against it; status 0: nothing
    struct rank_end end;         // once it is known
    char state;                  // as of crew_snapshot()
    bool at_memory_limit;        // likewise: it has all that rank-memory leaves it
};

// The start of a crew, a few ranks in each round of the loop.
struct crew_starting {
    bool active;
    int next; // the rank that is started next
    int progress_fd;
    struct mesh mesh;
    ev_check step;
    ev_idle awake; // keeps the loop from sleeping meanwhile
};

struct crews;
struct crew {
    struct crews *crews;
    int index;
    uint32_t generation; // 0: never started
    int implementation;
    const struct guest *guest; // whose program it is; NULL: ours
    int world_size;
    int alive; // ranks that are not reaped, those to be started with them
    struct crew_starting starting;
    struct error start_error;    // why it could not be started; status 0: nothing is wrong
    struct rank_process *ranks;  // [world_size]
    struct rank_report *reports; // [world_size], of the current job
    struct progress *progress;   // [world_size], shared with the ranks
    struct progress *snapshot;   // [world_size], copy made before the kill
    bool killed;
    ev_timer grace; // ranks that were asked to end, or told to
    bool told;
    uint64_t job;                // current or last; 0: none
    const struct job_kind *kind; // of that job
    bool verify;                 // it wants a verdict
};

struct crews {
    struct ev_loop *loop;
    struct crew_handler handler;
    // A process is reaped. The crew may be gone afterwards.
    void (*rank_gone)(struct crew *crew, int rank);
    const char *program;
    const struct guests *guests;
    const struct confinement *confinement;
    struct confinement guest_confinement;
    char **environment, **guest_environment;
    int null_fd;
    bool kills_strays;
    int starting_max;   // ranks of a crew of ours that may be on their way to their first word
    struct crew *table; // [POOLS_MAX]
    // One frame's payload; frames are dealt with one at a time.
    _Alignas(16) uint8_t payload[CHANNEL_PAYLOAD_MAX];
};

#endif
