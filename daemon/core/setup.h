// SPDX-License-Identifier: Apache-2.0
// What the core is created with, and what of it may change while the daemon runs.
#ifndef CPATTN_DAEMON_CORE_SETUP_H
#define CPATTN_DAEMON_CORE_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/core/users.h"

// Implementation 0 is ours, 1..guest_count are guests: rank programs of others, with pools of their
// own, which have no spares.
struct core_guest {
    uint64_t world_sizes;      // bit w - 1: it takes w ranks
    uint64_t start_timeout_ns; // as in core_config; > 0
};

struct core_host {
    int device_count;           // 1..DEVICES_MAX exclusive units
    bool away;                  // from the start it is lost: its agent has not come yet
    char name[HOST_NAME_BYTES]; // for texts; may be empty where there is one host
};

struct core_config {
    int host_count; // 1..HOSTS_MAX
    struct core_host hosts[HOSTS_MAX];
    bool spares;               // hot spares: daemon/core/twin.h
    bool oversubscribe;        // where there are too few devices for a pool it takes all devices of
                               // its hosts (CPU backend)
    int queue_max;             // jobs queued and running, 1..JOBS_MAX
    int user_queue_max;        // of one user, up to queue_max; 0: as many
    struct user_limits user;   // what of them runs: those beyond wait
    uint64_t timeout_max_ns;   // that a request may ask for; 0: any
    uint64_t memory_max;       // that jobs which run at a time may take together; 0: any
    int ranks_max;             // processes alive over all pools
    uint64_t start_timeout_ns; // from START to the last READY; > 0
    uint64_t peer_grace_ns;    // how long a "peer lost" report waits for the cause itself
    uint64_t idle_timeout_ns;  // an idle pool nobody waits for is stopped after this; 0: never
    uint64_t kill_timeout_ns;  // from KILL to the last exit, before the ranks left are stuck; > 0
    int guest_count;           // 0..GUESTS_MAX
    struct core_guest guests[GUESTS_MAX];
};

// What may change while the daemon runs.
struct core_limits {
    int user_queue_max;       // as in core_config
    uint64_t idle_timeout_ns; // idle pools begin to count anew
    struct user_limits user;
    uint64_t timeout_max_ns;
    uint64_t memory_max; // a job that waits and needs more than this runs alone
};

#endif
