// SPDX-License-Identifier: Apache-2.0
// Jobs: queued, running, answered. The state of a job is the list it is on; job_handle() is the
// table of states and events.
#ifndef CPATTN_DAEMON_CORE_JOB_H
#define CPATTN_DAEMON_CORE_JOB_H

#include "common/list.h"
#include "daemon/core/core.h"

struct account;
struct line;
struct pool;
struct size;

enum job_state {
    JOB_FREE,    // on core->jobs_free: the slot may be admitted to
    JOB_QUEUED,  // on the queue of its world size, in order of admission
    JOB_RUNNING, // on core->jobs_running, and pool->job of its pool
    JOB_STATES,
};

struct job {
    struct list node;
    struct list mate;  // QUEUED: on its line
    struct line *line; // QUEUED
    enum job_state state;
    int slot;
    uint64_t number;   // order of admission over all jobs, from 1
    bool abandoned;    // its answer is not to be remembered
    bool clients_gone; // it is cancelled because of that
    bool cancel_on_disconnect;
    bool any_nodes; // the hosts that it waits for may be others
    struct size *size;
    struct account *account; // of its user
    uint64_t case_hash, cost_ns, memory;
    uint64_t admitted_ns, deadline_ns, run_ns; // run_ns: when it began to run
    uint64_t run_timeout_ns;                   // 0: none
    uint64_t patience_ns;                      // with pools that are DOWN
    uint64_t start_ns;                         // how long it waited for the start of its pool
    struct pool *pool;                         // RUNNING
};

enum job_event_kind {
    JOB_RUN,         // `pool` takes it
    JOB_FINISH,      // all ranks have reported
    JOB_LOSE,        // its pool is lost: `cause`, `rank`, `no_evidence`
    JOB_EXPIRE,      // its deadline has passed
    JOB_CANCEL,      // somebody asked for it
    JOB_ABANDON,     // nobody waits for its answer
    JOB_REFUSE_DOWN, // all pools of its world size are DOWN, `pool` because of `rank`
    JOB_REFUSE_POISON,
    JOB_REFUSE_STUCK, // no pool can be had because of `rank` of `pool`
    JOB_MOVE,         // it waits for another `size` of its world size
    JOB_EVENTS,
};

struct job_event {
    enum job_event_kind kind;
    struct pool *pool;
    enum cause cause;
    int rank;
    struct size *size;
    bool no_evidence; // against its case
};

void job_init(struct core *core, int slot);

// Takes a free slot; there must be one.
struct job *job_admit(struct core *core, const struct core_request *request);

void job_handle(struct core *core, struct job *job, const struct job_event *event);

#endif
