// SPDX-License-Identifier: Apache-2.0
// State of the rank processes of this host: of one process, of the processes of one pool, of all.
#ifndef CPATTN_DAEMON_POOL_SQUAD_STATE_H
#define CPATTN_DAEMON_POOL_SQUAD_STATE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/channel.h"
#include "common/list.h"
#include "common/rank_end.h"
#include "common/report.h"
#include "common/status.h"
#include "daemon/pool/mesh.h"
#include "daemon/pool/starter.h"
#include "daemon/pool/stderr_pipe.h"
#include "daemon/process/confine.h"
#include "daemon/settings/guests.h"

struct squad;

// One process.
struct rank_child {
    struct squad *squad; // NULL: the rank is on another host
    int rank;
    int device; // its GPU, or -1
    pid_t pid;  // 0: not started, or reaped
    int pidfd, channel;
    ev_io exit_watcher, channel_watcher;
    bool heard;       // it has sent a valid HELLO
    bool ending;      // no `ending` follows: the end is known, or the rank abandoned
    ev_timer silence; // runs while the channel is closed and the process not known to be dead
    ev_timer reap;    // runs while the process has ended and cannot be reaped yet
    struct stderr_pipe stderr_pipe;
};

// Callbacks for events of the ranks of a squad. A squad may be destroyed in `not_started` and
// `gone`, but in no other callback.
struct squad_handler {
    void *context;
    // The start has failed; no rank of the squad is alive. No other events of its ranks follow.
    void (*not_started)(void *context, const struct error *error);
    // A frame of this generation. The first one is HELLO; its build and rank are checked. If the
    // handler does not return OK, the channel is closed, and `distrusted` follows.
    enum status (*frame)(void *context, int rank, const struct channel_frame *frame,
                         const void *payload, struct error *error);
    // The rank has broken a rule; its channel is closed.
    void (*distrusted)(void *context, int rank, const struct error *error);
    // The end of the rank is known, but it is not reaped yet. Not called for every rank.
    void (*ending)(void *context, int rank, const struct rank_end *end);
    // The rank is reaped, or was never started (RANK_LIVES). Called once for each rank of the
    // squad.
    void (*gone)(void *context, int rank, const struct rank_end *end);
    // Bytes of its stderr.
    void (*wrote)(void *context, int rank, const void *data, size_t size);
};

// The shared state of all rank processes of this host.
struct rank_host {
    struct ev_loop *loop;
    const char *program;
    const struct guests *guests;
    const struct confinement *confinement;
    struct confinement guest_confinement;
    char **environment, **guest_environment;
    int null_fd;
    struct starter *starter;
    uint64_t tickets; // last number given to a squad
    bool kills_strays;
    int starting_max; // ranks of one pool of the daemon's own program that may start at the same
                      // time
    struct list squads;
    // Payload of the frame that is being handled.
    _Alignas(16) uint8_t payload[CHANNEL_PAYLOAD_MAX];
};

// The ranks of one pool on this host.
struct squad {
    struct rank_host *host;
    struct list node; // of the host's squads
    uint64_t ticket;  // identifies the squad in requests to the starter
    struct squad_handler handler;
    // Called by rank_child.c when a process is reaped. May free the squad.
    void (*child_gone)(struct squad *squad, int rank, const struct rank_end *end);
    uint32_t generation;
    const struct guest *guest; // NULL: the daemon's own program
    int world_size;
    int here;                    // number of ranks on this host
    int alive;                   // those that are not reaped, including those not started yet
    struct rank_child *children; // [world_size]
    struct progress *progress;   // [world_size], shared with the ranks
    bool killed;
    struct error error; // why the start failed; status 0: it did not fail
    // State of the start, one rank after the other.
    bool starting;
    int next;    // the next rank to start; world_size: all are started
    bool making; // the starter creates `next`; may stay true until its answer after a failed start
    int progress_fd;
    struct mesh mesh;
    ev_check step;    // the next step of the start
    ev_idle awake;    // prevents the loop from waiting before the next step
    ev_timer meeting; // time limit for sockets to ranks of other hosts
};

#endif
