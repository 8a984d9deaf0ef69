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

// Callbacks for events of ranks. Each reports the event of the same name to the core (core.h).
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

// Number of this host.
#define HOST_HERE 0

struct crew_start;

// Functions for ranks on other hosts. They do not fail; outcomes are reported by crews_far_*(), and
// the loss of a host by crews_host_lost(). Calls for a lost host have no effect.
struct far_hosts {
    void *context;
    // Starts the ranks of the pool on its other hosts, and connects them with the ranks on this
    // host, which get their sockets by crews_connect().
    void (*start)(void *context, int pool, const struct crew_start *start);
    void (*send)(void *context, int host, uint32_t generation, int rank, enum channel_type type,
                 uint64_t job, const void *payload, uint32_t length);
    // squad_signal(), squad_kill() and squad_stop() on the other host.
    void (*signal)(void *context, int host, uint32_t generation, int number);
    void (*kill)(void *context, int host, uint32_t generation);
    void (*stop)(void *context, int host, uint32_t generation);
    const char *(*name)(void *context, int host);
};

struct crew;
struct rank_process {
    struct crew *crew;
    int rank;
    int host;    // HOST_HERE or the number of another host
    bool gone;   // reaped, or on a host that is lost
    bool closed; // distrusted or gone: no messages are sent to it
    bool ending; // its end was reported by `ending` or `exited`
    struct stderr_text stderr_text;
    bool said_hello, said_ready;
    bool reported;               // it has reported on the current job
    struct rank_failure failure; // reported by the rank, or found by the daemon; status 0: none
    struct rank_end end;         // RANK_LIVES until the end is known
    char far_state;              // rank on another host: state in the last report
    bool far_at_memory_limit;    // rank on another host: in the last report
    char state;                  // state letter at the last crew_snapshot()
    bool at_memory_limit;        // at the last crew_snapshot(): its memory reached rank-memory
};

struct crews;
struct crew {
    struct crews *crews;
    int index;
    uint32_t generation; // 0: never started
    int implementation;
    const struct guest *guest; // NULL: the daemon's own program
    int world_size;
    int alive;                   // ranks that are not gone, including those not started yet
    struct squad *squad;         // ranks on this host; NULL: there are none
    uint64_t far;                // bit h: ranks are on the other host h
    struct rank_process *ranks;  // [world_size]
    struct rank_report *reports; // [world_size], of the current job
    struct progress *words;      // [world_size], progress if no rank is on this host
    struct progress *progress;   // [world_size], points to the squad's or to `words`
    struct progress *snapshot;   // [world_size], copy of crew_snapshot()
    bool killed;
    ev_timer grace;                   // runs from STOP to SIGTERM and from SIGTERM to SIGKILL
    bool told;                        // SIGTERM is sent
    uint64_t job;                     // current or last job; 0: none
    const struct job_kind *kind;      // kind of that job
    bool verify;                      // the results of that job are verified
    char exchange[EXCHANGE_TEXT_MAX]; // how the ranks exchange data, as they say in READY; or ""
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
