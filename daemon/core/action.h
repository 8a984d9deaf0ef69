// SPDX-License-Identifier: Apache-2.0
// What the core asks of its shell.
#ifndef CPATTN_DAEMON_CORE_ACTION_H
#define CPATTN_DAEMON_CORE_ACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rank_end.h"
#include "common/status.h"

enum action_kind {
    ACTION_START,  // start the ranks of pool
    ACTION_RUN,    // hand the case of slot to every rank of pool
    ACTION_ANSWER, // answer the job; the slot is free afterwards
    ACTION_KILL,   // SIGKILL every rank of pool, on hosts that are not lost; exits are reported as
                   // they are reaped. Where a START fails while another action of its event has
                   // failed before it, a KILL may follow for ranks that never were
    ACTION_STUCK,  // for the log: ranks of pool are stuck since now. `rank` is the first of them,
                   // `devices` are theirs
    ACTION_EXIT,   // drained: nothing is left but ranks that are stuck
};

// Why a job was answered, and the status that goes with it. As gRPC has it: ABORTED, not
// UNAVAILABLE, where ranks were lost, because UNAVAILABLE invites a blind retry and the case may be
// what killed them; INTERNAL where a rank says that something of ours is broken.
enum cause {
    CAUSE_NONE,              // OK: every rank has reported
    CAUSE_RANK_EXITED,       // ABORTED: a rank died; `rank` says which
    CAUSE_RANK_FAILED,       // INTERNAL: `rank` reported a failure of its own or broke the protocol
    CAUSE_PEER_LOST,         // ABORTED: `rank` was lost by another; no better cause came in time
    CAUSE_DEADLINE_QUEUED,   // DEADLINE_EXCEEDED
    CAUSE_DEADLINE_STARTING, // DEADLINE_EXCEEDED: its pool was being started
    CAUSE_DEADLINE_RUNNING,  // DEADLINE_EXCEEDED: the shell names the culprit from the progress
                             // words
    CAUSE_START_FAILED, // UNAVAILABLE: its pools have been DOWN for longer than it has patience
    CAUSE_CANCELLED,    // CANCELLED: as asked, or because of `clients_gone`
    CAUSE_POISON,       // FAILED_PRECONDITION: queued while its case killed a second pool
    CAUSE_STUCK, // UNAVAILABLE: queued while `rank` of `pool`, which may be of another world size,
                 // got stuck on the one device in `devices` of `hosts`: core_is_stuck()
    CAUSE_NODE_LOST, // ABORTED: `host`, where some of its ranks were, was lost
};

struct action {
    enum action_kind kind;
    // 0..POOLS_MAX-1; -1 where none. Names the pool, by its crew, from its START until the last of
    // its ranks is reaped, and then perhaps another. The ANSWERs that a last exit brings still
    // carry it.
    int pool;
    uint32_t generation; // counts the starts of all pools; never used twice
    int implementation, world_size, instance;
    bool spare;          // START: it is to stand by for the pool that works on these devices
    int slot;            // RUN, ANSWER
    const char *reason;  // KILL: in words, with the `rank` that is its cause
    struct rank_end end; // KILL: how that rank ended, if this is the reason
    int answer_index;    // ANSWER: what to keep it under, in case it is asked for again, or -1
    enum status status;
    enum cause cause;
    int rank;         // the causing rank, or -1
    int host;         // ANSWER, KILL: the host whose loss is the cause, or -1
    uint64_t hosts;   // of the pool: bit mask
    uint64_t devices; // of the pool, on each of its hosts: bit mask of slots, of which a host may
                      // lack some where devices are oversubscribed: core_seat()
    uint64_t job;     // number, never used twice
    int own_before;   // ANSWER, CAUSE_DEADLINE_QUEUED: jobs of the same user that run, or that wait
                      // for the same world size and go before it
    bool clients_gone;                             // ANSWER
    uint64_t queue_ns, start_ns, run_ns, total_ns; // ANSWER
};

// Where a rank of a pool is started, and stays: the i-th of the ranks on a host has the i-th of the
// pool's devices there, and where there are fewer, they are dealt in turn.
struct core_seat {
    int host, device; // the device counts from 0 on each host
};

#endif
