// SPDX-License-Identifier: Apache-2.0
// Pools: the ranks of one world size in one place. The mode of a pool is the list it is
// on; pool_handle() is the table of modes and events.
//
// A pool leases its devices while it starts (but not to stand by) or runs, and from then on until
// its ranks are reaped: two leases never overlap, and so jobs never do. An idle pool holds none.
// The one lease that passes from hand to hand is that of a pool which was killed: its twin, if that
// is up, runs jobs meanwhile.
// One that is stuck gives its lease back, and keeps everybody from the devices that its last ranks
// sit on (stuck.h).
#ifndef CPATTN_DAEMON_CORE_POOL_H
#define CPATTN_DAEMON_CORE_POOL_H

#include "common/list.h"
#include "daemon/core/core.h"
#include "daemon/core/devices.h"
#include "daemon/core/failures.h"

struct job;
struct size;

enum pool_mode {
    MODE_COLD, // no ranks; may be started
    MODE_STARTING,
    MODE_IDLE, // on its list in order of last use
    MODE_RUNNING,
    MODE_SUSPECT,  // running, and a rank has lost another: waiting for the cause
    MODE_STOPPING, // killed; waiting for the last exit
    MODE_STUCK,    // the same for too long
    MODE_BACKOFF,  // no ranks; not to be started yet
    MODE_COUNT,
};

// Why a pool was lost.
enum pool_loss {
    LOSS_NONE,
    LOSS_EXITED,        // `rank` exited
    LOSS_KILLED,        // `rank` was killed from outside
    LOSS_FAILED,        // `rank` failed
    LOSS_PEER,          // `rank` was lost by another
    LOSS_START_TIMEOUT, // not all ranks were ready in time
    LOSS_NOT_STARTED,   // the shell could not carry out the START
    LOSS_DEADLINE,      // killed because its job overran
    LOSS_HOST,          // `host`, where some of its ranks were, was lost
    LOSS_COUNT,
};

struct loss {
    enum pool_loss kind;
    int rank;            // its cause, or -1
    int host;            // HOST, else -1
    struct rank_end end; // EXITED, KILLED: how that ended
};

struct pool {
    struct list node;
    enum pool_mode mode;
    int index; // in core->pools
    struct size *size;
    int world_size, instance;
    struct place place; // of a pool of several hosts that has no ranks it may change: hosts.h
    bool leased;        // it holds its devices
    bool yields;        // STOPPING: it held them, and its twin has taken them over
    struct pool *twin;  // or NULL: see twin.h

    // Of the ranks, from START until the last is reaped:
    int crew; // by which the shell knows them: their index in core->crews; else -1
    uint32_t generation;
    uint64_t alive, ready, reported; // bit masks of ranks; alive: on hosts that are not lost
    uint64_t victims;                // ranks that said they lost a peer
    int suspect;                     // the rank that they lost
    struct job *job;                 // RUNNING, SUSPECT
    bool as_spare;                   // it was started to stand by
    bool used;                       // it has had a job
    bool start_failed;               // STOPPING, STUCK: it never became ready
    bool must_wait;                  // STOPPING, STUCK: it was lost before it was of any use
    uint64_t started_ns, ready_ns;

    // Of it and its twin: for a job, and to stand by.
    struct failures failures, spare_failures;
    uint32_t starts;
    uint64_t jobs, deaths;
    struct loss loss; // the last
    uint64_t lost_ns; // when

    uint64_t pass; // of the scheduler: the last in which a waiting job reserved it
};

enum pool_event_kind {
    // Orders.
    POOL_START, // `spare`
    POOL_RUN,   // `job`
    POOL_STOP,  // `loss`: LOSS_DEADLINE, or LOSS_NONE when nothing is wrong with it, and `why`
    // What is heard of its ranks.
    POOL_READY,
    POOL_REPORTED, // of the job with `number`
    POOL_FAILED,
    POOL_PEER_LOST, // `peer`
    POOL_ENDING,
    POOL_EXITED,
    POOL_GONE,      // `ranks` are not alive: their START was not carried out
    POOL_HOST_LOST, // `host`, and what is left of `ranks` there
    POOL_TIMER,
    POOL_EVENTS,
};

struct pool_event {
    enum pool_event_kind kind;
    int rank; // -1 where it is none's doing
    int peer, host;
    uint64_t ranks; // bit mask
    uint64_t number;
    struct job *job;
    enum pool_loss loss;
    const char *why;     // in words; lasts
    bool spare;          // to stand by for its twin, which is up
    struct rank_end end; // ENDING, EXITED
};

// `instance` of its size, without ranks; core->pools[index]. `twin` may be NULL.
void pool_init(struct core *core, int index, struct size *size, int instance, struct place place,
               struct pool *twin);

// See core_seat().
struct core_seat pool_seat(const struct core *core, const struct pool *pool, int rank);

void pool_handle(struct core *core, struct pool *pool, const struct pool_event *event);

// The idle timeout of an idle pool counts from now.
void pool_wait_anew(struct core *core, struct pool *pool);

// An action with what it says of the pool filled in; `pool` may be NULL.
struct action pool_action(enum action_kind kind, const struct pool *pool);

// A few words on how it was lost last; empty when it never was.
void pool_loss_text(const struct core *core, const struct pool *pool, struct error *text);

// As the wire knows it.
enum pool_state pool_state(const struct pool *pool);

#endif
