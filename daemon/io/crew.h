// SPDX-License-Identifier: Apache-2.0
// The rank processes of the daemon: starts them as the core orders, hands them cases, and reports
// what they say and how they end. Decides nothing. All calls on the loop's thread, which must be
// the main thread (daemon/io/spawn.h).
#ifndef CPATTN_DAEMON_IO_CREW_H
#define CPATTN_DAEMON_IO_CREW_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/channel.h"
#include "common/report.h"
#include "daemon/guests.h"
#include "daemon/io/confine.h"
#include "daemon/io/stderr_pipe.h"
#include "daemon/io/tasks.h"

// What becomes of ranks; named like the core's events, which they lead to.
struct crew_handler {
    void *context;
    void (*ready)(void *context, int pool, uint32_t generation, int rank);
    void (*reported)(void *context, int pool, uint32_t generation, int rank, uint64_t job);
    void (*failed)(void *context, int pool, uint32_t generation, int rank, int kind, int peer);
    void (*ending)(void *context, int pool, uint32_t generation, int rank, bool from_outside);
    void (*exited)(void *context, int pool, uint32_t generation, int rank, bool from_outside);
};

#define FATE_MAX 96

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
    char fate[FATE_MAX];         // how it ended, "" while it lives
    bool from_outside;           // its end: of a signal that no fault of its own brings
    char state;                  // as of crew_snapshot()
    bool at_memory_limit;        // likewise: it has all that rank-memory leaves it
};

struct crews;
struct crew {
    struct crews *crews;
    int index;
    uint32_t generation; // 0: never started
    int implementation;
    const struct guest *guest; // whose program it is; NULL: ours
    int world_size, alive;
    struct rank_process *ranks;  // [world_size]
    struct rank_report *reports; // [world_size], of the current job
    struct progress *progress;   // [world_size], shared with the ranks
    struct progress *snapshot;   // [world_size], copy made before the kill
    bool has_snapshot, killed;
    ev_timer grace; // ranks that were asked to end, or told to
    bool told;
    uint64_t job; // current or last; 0: none
    bool verify;  // its case wants a verdict
};

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

// Starts all ranks of a pool. On failure none is alive, and nothing is left of those that were.
enum status crew_start(struct crews *crews, int index, const struct crew_start *start,
                       struct error *error) MUST_CHECK;

// Hands a case to every rank. A rank that cannot take it is reported through `failed`, from here.
void crew_run(struct crew *crew, uint64_t job, const struct task *task);

// Remembers where each rank stands and what state its process is in. Once per generation, at the
// first call; crew_kill() begins with it.
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
