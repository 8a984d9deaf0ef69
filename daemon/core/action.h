// SPDX-License-Identifier: Apache-2.0
// Actions: what the core tells the service to do.
#ifndef CPATTN_DAEMON_CORE_ACTION_H
#define CPATTN_DAEMON_CORE_ACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rank_end.h"
#include "common/status.h"

enum action_kind {
    ACTION_START,  // start the ranks of the pool
    ACTION_RUN,    // send the case of the slot to every rank of the pool
    ACTION_ANSWER, // answer the job; the slot is then free
    ACTION_KILL,   // SIGKILL every rank of the pool on hosts that are not lost; the service reports
                   // their exits. After a failed START in the same event a KILL may name ranks that
                   // were never started
    ACTION_STUCK,  // for the log: ranks of the pool are stuck from now on. `rank` is the first of
                   // them, `devices` are their devices
    ACTION_EXIT,   // drained: only stuck ranks are left
};

// The cause of an answer, and its status, as gRPC defines them. If ranks were lost, the status is
// ABORTED: UNAVAILABLE would invite a blind retry of a case that may have killed them. If a rank
// reports an internal failure, it is INTERNAL.
enum cause {
    CAUSE_NONE,              // OK: every rank has reported
    CAUSE_RANK_EXITED,       // ABORTED: `rank` died
    CAUSE_RANK_FAILED,       // INTERNAL: `rank` reported a failure or broke the protocol
    CAUSE_PEER_LOST,         // ABORTED: another rank lost `rank`; no better cause came in time
    CAUSE_DEADLINE_QUEUED,   // DEADLINE_EXCEEDED
    CAUSE_DEADLINE_STARTING, // DEADLINE_EXCEEDED: its pool was being started
    CAUSE_DEADLINE_RUNNING,  // DEADLINE_EXCEEDED: the service finds the slow rank from the progress
                             // words
    CAUSE_START_FAILED,      // UNAVAILABLE: its pools have been DOWN for longer than patience_ns
    CAUSE_CANCELLED,         // CANCELLED: by request, or because of `clients_gone`
    CAUSE_POISON,            // FAILED_PRECONDITION: queued while its case killed a second pool
    CAUSE_STUCK,     // UNAVAILABLE: queued while `rank` of `pool`, possibly of another world size,
                     // became stuck on the one device in `devices` of `hosts`: core_is_stuck()
    CAUSE_NODE_LOST, // ABORTED: `host` with some of its ranks was lost
};

struct action {
    enum action_kind kind;
    // 0..POOLS_MAX-1; -1: none. The crew number of the pool, from its START until the last of its
    // ranks is reaped; then another pool may get this number. ANSWERs of the event that reaps the
    // last rank still have it.
    int pool;
    uint32_t generation; // counts the starts of all pools; never used twice
    int implementation, world_size, instance;
    bool spare;          // START: the pool stands by for its twin, which works on these devices
    int slot;            // RUN, ANSWER
    const char *reason;  // KILL: in words; `rank` is the cause
    struct rank_end end; // KILL: how that rank ended, if this is the reason
    int answer_index;    // ANSWER: index under which the service stores the answer; -1: not stored
    enum status status;
    enum cause cause;
    int rank;         // the causing rank, or -1
    int host;         // ANSWER, KILL: the host whose loss is the cause, or -1
    uint64_t hosts;   // of the pool: bit mask
    uint64_t devices; // of the pool, on each of its hosts: bit mask of slots. If ranks share
                      // devices, a host may have only some of them: core_seat()
    uint64_t job;     // number, never used twice
    int own_before;   // ANSWER, CAUSE_DEADLINE_QUEUED: jobs of the same user that run, or that wait
                      // for the same world size and come before it
    const char *limit; // ANSWER, CAUSE_DEADLINE_QUEUED: the setting that let no further job of the
                       // user run; NULL: none did
    bool clients_gone; // ANSWER
    uint64_t left_ns;  // RUN: until the deadline of the job
    uint64_t queue_ns, start_ns, run_ns, total_ns; // ANSWER
};

// Host and device of a rank. The i-th rank on a host has the i-th of the pool's devices there. If
// there are fewer devices than ranks, ranks are assigned to them round-robin.
struct core_seat {
    int host, device; // the device counts from 0 on each host
};

#endif
