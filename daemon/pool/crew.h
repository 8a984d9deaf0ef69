// SPDX-License-Identifier: Apache-2.0
// The rank processes of the daemon: starts them as the core orders, hands them cases, and reports
// what they say and how they end. Decides nothing. All calls on the loop's thread, which must be
// the main thread (daemon/process/spawn.h).
#ifndef CPATTN_DAEMON_POOL_CREW_H
#define CPATTN_DAEMON_POOL_CREW_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/pool/crew_state.h"
#include "plan/kind.h"
#include "plan/places.h"

// `program`: path of cpattn-rank; borrowed for the life of the pools, as are guests and
// confinement.
enum status crews_create(struct ev_loop *loop, const char *program, const struct guests *guests,
                         const struct confinement *confinement, const struct crew_handler *handler,
                         struct crews **crews, struct error *error) MUST_CHECK;

// Kills and reaps what is left; what cannot be reaped within 2 s is logged and left. Takes NULL.
void crews_destroy(struct crews *crews);

// Valid until the next crew_start() of this index.
struct crew *crews_get(struct crews *crews, int index);

// What a pool is started as. Implementations are those of the core: 0 is ours, i the guest i - 1.
struct crew_start {
    uint32_t generation;
    int implementation, world_size;
    const int *gpus; // in order of the ranks; NULL: none
};

// Starts the ranks of a pool: some at once, the others in the next rounds of the loop. On failure
// none is alive, and nothing is left of those that were; what fails later is told by `not_started`,
// unless the pool is killed before that.
enum status crew_start(struct crews *crews, int index, const struct crew_start *start,
                       struct error *error) MUST_CHECK;

// What the ranks of a pool are to run; all is borrowed for the call.
struct crew_task {
    const struct job_spec *spec;
    const struct whole_places *places; // of a client's tensors; NULL: it brings and wants none
    int given_fd, wanted_fd;           // with places: the memory of these, or -1
};

// Hands a case to every rank. A rank that cannot take it is reported through `failed`, from here.
void crew_run(struct crew *crew, uint64_t job, const struct crew_task *task);

// Remembers where each rank stands and what state its process is in. crew_kill() begins with it,
// and what was remembered then stays.
void crew_snapshot(struct crew *crew);

// Ends every rank and its process group; the exits are reported as they are reaped. Ranks that are
// all well and have nothing to do are asked to end by themselves, so that what runs with them (a
// profiler around each, say) can end its work; they get SIGTERM after a quarter of a second and
// SIGKILL after half a second. All others get SIGKILL at once: nothing is gained by what a broken
// pool would still do, and a case waits for the next one.
void crew_kill(struct crew *crew);

// Whether all ranks have said READY.
bool crew_is_ready(const struct crew *crew);

// Reads what the ranks have written to stderr by now.
void crew_drain_stderr(struct crew *crew);

// Kills and reaps processes that ranks have left behind and that came to us as their reaper. Where
// the daemon cannot tell them from others they are only reaped.
void crews_reap_strays(struct crews *crews);

#endif
