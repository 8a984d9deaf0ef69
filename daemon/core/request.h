// SPDX-License-Identifier: Apache-2.0
// Requests to the core, and what it makes of them.
#ifndef CPATTN_DAEMON_CORE_REQUEST_H
#define CPATTN_DAEMON_CORE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire.h" // struct request_id

// Bounds beyond this are taken for it: two weeks.
#define CORE_COST_MAX_NS (UINT64_C(1) << 50)

// More than any machine has: what all jobs take can be added up.
#define CORE_MEMORY_MAX (UINT64_C(1) << 48)

struct core_request {
    struct request_id id;
    uint32_t user;      // who asks
    int implementation; // 0..guest_count
    int world_size;
    // Over how many hosts the ranks are spread, evenly, and how many are on each. Each may be 0:
    // any. Where both are, one host if the ranks fit there, else as few hosts as divide them; and
    // if the hosts that this comes to are lost or out of use, others that will do.
    int nodes, ranks_per_node;
    uint64_t timeout_ns;     // > 0; the deadline is now + timeout
    uint64_t run_timeout_ns; // > 0: at RUN the deadline comes forward to RUN + this, if it is later
    uint64_t patience_ns;    // it is refused once all pools of its world size are DOWN for so long
    bool cancel_on_disconnect; // core_abandon() cancels it while it runs, too
    uint64_t case_hash;
    uint64_t cost_ns; // it cannot run in less time than this, 0..CORE_COST_MAX_NS
    uint64_t memory;  // that it takes while it runs, up to CORE_MEMORY_MAX
};

// What becomes of a request that is not refused.
struct admission {
    enum {
        ADMISSION_NEW, // a job; `index` is its slot, under which the shell keeps the case until
                       // the ANSWER action
        ADMISSION_ATTACHED, // this request is queued or running already, in the slot `index`
        ADMISSION_ANSWERED, // it was answered; `index` is that ANSWER's `answer_index`
    } kind;
    int index; // 0..JOBS_MAX-1, 0..ANSWERED_IDS_MAX-1
};

// A rank that was killed and is not reaped.
struct core_stuck {
    int pool; // of the rank, as `generation` and `rank`
    uint32_t generation;
    int rank;
    int host, device; // where it sits: core_seat()
};

#endif
