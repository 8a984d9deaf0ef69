// SPDX-License-Identifier: Apache-2.0
// Pools: the ranks of one world size in one place. Each mode has a list, and a pool is on the list
// of its mode; pool_handle() is the table of modes and events.
//
// A pool leases its devices while it runs a job, and while it starts for a job. It keeps the lease
// until it is idle or its ranks are reaped. Two leases never overlap, so two jobs never share a
// device. An idle pool has no lease. The lease of a killed pool passes to its twin, if that is up.
// A stuck pool returns its lease; only the devices of its remaining ranks stay out of use
// (stuck.h).
#ifndef CPATTN_DAEMON_CORE_POOL_H
#define CPATTN_DAEMON_CORE_POOL_H

#include "daemon/core/job.h"
#include "daemon/core/state.h"

enum pool_event_kind {
    // From the scheduler and from jobs.
    POOL_START, // `spare`
    POOL_RUN,   // `job`
    POOL_STOP,  // `loss`: LOSS_DEADLINE, or LOSS_NONE for a healthy pool, and `why`
    // From its ranks.
    POOL_READY,
    POOL_REPORTED, // of the job with `number`
    POOL_FAILED,
    POOL_PEER_LOST, // `peer`
    POOL_ENDING,
    POOL_EXITED,
    POOL_GONE,      // `ranks` are not alive: their START failed
    POOL_HOST_LOST, // `host`, and `ranks` that were alive there
    POOL_TIMER,
    POOL_EVENTS,
};

struct pool_event {
    enum pool_event_kind kind;
    int rank; // -1: none
    int peer, host;
    uint64_t ranks; // bit mask
    uint64_t number;
    struct job *job;
    enum pool_loss loss;
    const char *why;     // in words; a constant
    bool spare;          // START: the pool stands by for its twin, which is up
    struct rank_end end; // ENDING, EXITED
};

// Initializes core->pools[index] as a pool without ranks: number `instance` of its size. `twin` may
// be NULL.
void pool_init(struct core *core, int index, struct size *size, int instance, struct place place,
               struct pool *twin);

void pool_handle(struct core *core, struct pool *pool, const struct pool_event *event);

// Sends the job JOB_EXPIRE, JOB_CANCEL or JOB_ABANDON. If this answers a running job, its pool is
// killed.
void pool_end_job(struct core *core, struct job *job, enum job_event_kind kind);

// Restarts the idle timeout of an idle pool.
void pool_restart_idle_timer(struct core *core, struct pool *pool);

#endif
