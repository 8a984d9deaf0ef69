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

#include "daemon/core/job.h"
#include "daemon/core/state.h"

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

void pool_handle(struct core *core, struct pool *pool, const struct pool_event *event);

// Tells the job JOB_EXPIRE, JOB_CANCEL or JOB_ABANDON. A job that is answered for it while it runs
// takes its pool with it.
void pool_end_job(struct core *core, struct job *job, enum job_event_kind kind);

// The idle timeout of an idle pool counts from now.
void pool_wait_anew(struct core *core, struct pool *pool);

#endif
