// SPDX-License-Identifier: Apache-2.0
// Requests to the core, and their outcomes.
#ifndef CPATTN_DAEMON_CORE_REQUEST_H
#define CPATTN_DAEMON_CORE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire.h" // struct request_id

// Largest lower bound of a job's time, about two weeks; larger bounds are reduced to this.
#define CORE_COST_MAX_NS (UINT64_C(1) << 50)

// Upper bound of a job's memory in bytes; the sum over all jobs fits in 64 bits.
#define CORE_MEMORY_MAX (UINT64_C(1) << 48)

struct core_request {
    struct request_id id;
    uint32_t user;
    int implementation; // 0..guest_count
    int world_size;
    // Number of hosts over which the ranks are spread evenly, and number of ranks on each; 0: any.
    // If both are 0: one host if the ranks fit there, else the smallest possible number of hosts
    // that divides the ranks; if these hosts are lost or out of use, any possible number.
    int nodes, ranks_per_node;
    uint64_t timeout_ns;       // > 0; the deadline is now + timeout
    uint64_t run_timeout_ns;   // > 0: at RUN the deadline moves to RUN + this, if that is earlier
    uint64_t patience_ns;      // the job is refused when all its pools have been DOWN for this long
    bool cancel_on_disconnect; // core_abandon() cancels the job also while it runs
    uint64_t case_hash;
    uint64_t cost_ns; // lower bound of the running time, 0..CORE_COST_MAX_NS
    uint64_t memory;  // bytes used while the job runs, up to CORE_MEMORY_MAX
};

// The outcome of a request that is not refused.
struct admission {
    enum {
        ADMISSION_NEW,      // a new job; `index` is its slot until the ANSWER action
        ADMISSION_ATTACHED, // the same request is queued or running in slot `index`
        ADMISSION_ANSWERED, // the same request was answered; `index` is its `answer_index`
    } kind;
    int index; // 0..JOBS_MAX-1, 0..ANSWERED_IDS_MAX-1
};

// A rank that was killed and is not reaped.
struct core_stuck {
    int pool; // crew number; with `generation` and `rank` it identifies the rank
    uint32_t generation;
    int rank;
    int host, device; // of the rank: core_seat()
};

#endif
