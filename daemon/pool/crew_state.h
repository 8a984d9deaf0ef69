// SPDX-License-Identifier: Apache-2.0
// State of the pools of the daemon: of each rank, of each pool, of all pools.
#ifndef CPATTN_DAEMON_POOL_CREW_STATE_H
#define CPATTN_DAEMON_POOL_CREW_STATE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/channel.h"
#include "common/rank_end.h"
#include "common/report.h"
#include "common/status.h"
#include "daemon/pool/squad_state.h"
#include "daemon/pool/stderr_text.h"
#include "plan/kind.h"

// Callbacks for events of ranks, named like the events of the core that they cause.
struct crew_handler {
    void *context;
    // The start of the ranks on one host has failed; none of them is alive.
    void (*not_started)(void *context, int pool, uint32_t generation, int host,
                        const struct error *error);
    void (*ready)(void *context, int pool, uint32_t generation, int rank);
    void (*reported)(void *context, int pool, uint32_t generation, int rank, uint64_t job);
    void (*failed)(void *context, int pool, uint32_t generation, int rank, int kind, int peer);
    void (*ending)(void *context, int pool, uint32_t generation, int rank,
                   const struct rank_end *end);
    void (*exited)(void *context, int pool, uint32_t generation, int rank,
                   const struct rank_end *end);
};

// This host, among those of a pool.
#define HOST_HERE 0

struct crew_start;

// Ranks on other hosts: what is ordered of them. Nothing fails at once; what comes of it is told by
// crews_far_*(), and the loss of a host by crews_host_lost(). Orders to a host that is lost are
// dropped.
struct far_hosts {
    void *context;
    // Starts the ranks of the pool on all other hosts of it, and connects those that are here with
    // them: crews_connect().
    void (*start)(void *context, int pool, const struct crew_start *start);
    void (*send)(void *context, int host, uint32_t generation, int rank, enum channel_type type,
                 uint64_t job, const void *payload, uint32_t length);
    // As squad_signal(), squad_kill(), squad_stop().
    void (*signal)(void *context, int host, uint32_t generation, int number);
    void (*kill)(void *context, int host, uint32_t generation);
    void (*stop)(void *context, int host, uint32_t generation);
    const char *(*name)(void *context, int host);
};

struct crew;
struct rank_process {
    struct crew *crew;
    int rank;
    int host;    // HOST_HERE, or another
    bool gone;   // reaped, or on a host that is lost
    bool closed; // nothing is said to it any more
    bool ending; // its end is known
    struct stderr_text stderr_text;
    bool said_hello, said_ready;
    bool reported;               // the current job
    struct rank_failure failure; // what it said, or what is held against it; status 0: nothing
    struct rank_end end;         // once it is known
    char far_state;              // of a rank on another host: as last heard
    bool far_at_memory_limit;
    char state;           // as of crew_snapshot()
    bool at_memory_limit; // likewise: it has all that rank-memory leaves it
};

struct crews;
struct crew {
    struct crews *crews;
    int index;
    uint32_t generation; // 0: never started
    int implementation;
    const struct guest *guest; // whose program it is; NULL: ours
    int world_size;
    int alive;                   // ranks that are not gone, those to be started with them
    struct squad *squad;         // of the ranks that are here; NULL: none are
    uint64_t far;                // bit h: it has ranks on host h, which is another
    struct rank_process *ranks;  // [world_size]
    struct rank_report *reports; // [world_size], of the current job
    struct progress *words;      // [world_size], where no rank is here
    struct progress *progress;   // [world_size], the squad's or `words`
    struct progress *snapshot;   // [world_size], copy made before the kill
    bool killed;
    ev_timer grace; // ranks that were asked to end, or told to
    bool told;
    uint64_t job;                // current or last; 0: none
    const struct job_kind *kind; // of that job
    bool verify;                 // it wants a verdict
};

struct crews {
    struct ev_loop *loop;
    struct crew_handler handler;
    struct far_hosts far;
    const struct guests *guests;
    struct rank_host host;
    struct crew *table; // [POOLS_MAX]
};

#endif
