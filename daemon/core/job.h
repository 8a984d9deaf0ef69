// SPDX-License-Identifier: Apache-2.0
// Jobs: queued, running, answered. Each state has a list, and a job is on the list of its state;
// job_handle() is the table of states and events.
#ifndef CPATTN_DAEMON_CORE_JOB_H
#define CPATTN_DAEMON_CORE_JOB_H

#include <stdbool.h>

#include "daemon/core/action.h"

struct core;
struct core_request;
struct job;
struct pool;
struct size;

enum job_event_kind {
    JOB_RUN,         // `pool` runs it
    JOB_FINISH,      // all ranks have reported
    JOB_LOSE,        // its pool is lost: `cause`, `rank`, `no_evidence`
    JOB_EXPIRE,      // its deadline has passed
    JOB_CANCEL,      // a client or an administrator cancels it
    JOB_ABANDON,     // no client waits for its answer
    JOB_REFUSE_DOWN, // all pools of its world size are DOWN, `pool` because of `rank`
    JOB_REFUSE_POISON,
    JOB_REFUSE_STUCK, // no pool is possible because of `rank` of `pool`
    JOB_MOVE,         // the job changes to another `size` of the same world size
    JOB_EVENTS,
};

struct job_event {
    enum job_event_kind kind;
    struct pool *pool;
    enum cause cause;
    int rank;
    struct size *size;
    bool no_evidence; // LOSE: the loss is not counted against the case
};

void job_init(struct core *core, int slot);

// Takes a free slot; there must be one.
struct job *job_admit(struct core *core, const struct core_request *request);

void job_handle(struct core *core, struct job *job, const struct job_event *event);

#endif
