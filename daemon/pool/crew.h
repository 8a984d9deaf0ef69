// SPDX-License-Identifier: Apache-2.0
// The pools of the daemon: starts their ranks for the core, on this host and on others, sends them
// cases, and reports their messages and exits. Makes no decisions. All calls on the loop's thread,
// which must be the main thread (daemon/process/spawn.h).
#ifndef CPATTN_DAEMON_POOL_CREW_H
#define CPATTN_DAEMON_POOL_CREW_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/pool/crew_state.h"
#include "daemon/process/proc.h"
#include "plan/kind.h"
#include "plan/places.h"

// `program`: path of cpattn-rank. Program, guests and confinement are borrowed for the life of the
// pools.
enum status crews_create(struct ev_loop *loop, const char *program, const struct guests *guests,
                         const struct confinement *confinement, const struct crew_handler *handler,
                         struct crews **crews, struct error *error) MUST_CHECK;

// Sets the functions for other hosts; call before the first start with ranks there. `far` is
// copied.
void crews_set_far(struct crews *crews, const struct far_hosts *far);

// Kills and reaps all ranks; logs and leaves those that cannot be reaped within 2 s. Accepts NULL.
void crews_destroy(struct crews *crews);

// Returns the crew of a pool, 0..POOLS_MAX-1. Its contents are those of the last crew_start() of
// this index; they are zeroed when all its ranks are gone.
struct crew *crews_get(struct crews *crews, int index);

// Parameters of a start. Implementations are numbered as in the core: 0 is the daemon's own, i
// guest i - 1.
struct crew_start {
    uint32_t generation;
    int implementation, world_size;
    const int *devices; // by rank: GPUs of ranks on this host; NULL: none
    const int *hosts;   // by rank: below HOSTS_MAX; NULL: all are on this host
    const int *slots;   // by rank: device on its host, for ranks on other hosts
};

// Begins to start the ranks of a pool, on each host one after the other. On failure no rank exists.
// Later failures are reported by `not_started`, once for each host, unless the pool is killed
// first.
enum status crew_start(struct crews *crews, int index, const struct crew_start *start,
                       struct error *error) MUST_CHECK;

// A job for the ranks of a pool; borrowed during crew_run().
struct crew_task {
    const struct job_spec *spec;
    const struct whole_places *places; // of a client's tensors; NULL: there are none
    int given_fd, wanted_fd;           // with places: memory of the tensors, or -1
    uint64_t left_ns;                  // remaining time until the job's time limit
};

// Sends a job to every rank, and clears their stored stderr output. Calls `failed` for a rank that
// cannot take it.
void crew_run(struct crew *crew, uint64_t job, const struct crew_task *task);

// Records the progress of each rank and the state of its process. crew_kill() calls this first;
// after a kill the record does not change.
void crew_snapshot(struct crew *crew);

// Ends every rank and its process group; each exit is reported when the rank is reaped. If all
// ranks are healthy and idle, they get the message STOP, so that a program that runs them, such as
// a profiler, can finish; SIGTERM follows after a quarter of a second, SIGKILL after half a second.
// Otherwise all ranks get SIGKILL at once.
void crew_kill(struct crew *crew);

// True if all ranks have sent READY.
bool crew_is_ready(const struct crew *crew);

// Reads the pending stderr output of the ranks on this host.
void crew_drain_stderr(struct crew *crew);

// Describes the process of a rank, as proc_describe(); for a rank on another host, names the host.
const char *crew_describe_process(const struct crew *crew, int rank, char text[PROC_TEXT_MAX]);

// As rank_host_reap_strays().
void crews_reap_strays(struct crews *crews);

// ---- from other hosts --------------------------------------------------------------------------

// Identifies a rank on another host. Events whose rank is not on that host are ignored.
struct far_rank {
    int host, pool;
    uint32_t generation;
    int rank;
};

void crews_far_not_started(
    struct crews *crews, const struct far_rank *at,
    const struct error *error); // for all ranks of the host; `rank` is ignored
void crews_far_frame(struct crews *crews, const struct far_rank *at,
                     const struct channel_frame *frame, const void *payload);
void crews_far_distrusted(struct crews *crews, const struct far_rank *at,
                          const struct error *error);
void crews_far_ending(struct crews *crews, const struct far_rank *at, const struct rank_end *end);
void crews_far_gone(struct crews *crews, const struct far_rank *at, const struct rank_end *end);
void crews_far_wrote(struct crews *crews, const struct far_rank *at, const void *data, size_t size);
void crews_far_seen(struct crews *crews, const struct far_rank *at, const struct progress *word,
                    char state, bool at_memory_limit);

// A socket from `rank` on this host to `peer` on another is connected; the crew takes it over.
void crews_connect(struct crews *crews, int pool, uint32_t generation, int rank, int peer, int fd);
// A socket between ranks of the pool could not be connected: its start fails.
void crews_not_connected(struct crews *crews, int pool, uint32_t generation,
                         const struct error *error);

// The host is lost: its ranks count as gone, and their exits are not reported.
void crews_host_lost(struct crews *crews, int host);

#endif
