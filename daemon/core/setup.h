// SPDX-License-Identifier: Apache-2.0
// The configuration of the core, and the limits that may change while the daemon runs.
#ifndef CPATTN_DAEMON_CORE_SETUP_H
#define CPATTN_DAEMON_CORE_SETUP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/core/users.h"

// Implementation 0 is the daemon's own rank program, 1..guest_count are guests. Guests have
// separate pools without spares.
struct core_guest {
    uint64_t world_sizes;      // bit w - 1: the guest supports w ranks
    uint64_t start_timeout_ns; // as in core_config; > 0
};

struct core_host {
    int device_count;           // 1..DEVICES_MAX exclusive units
    bool away;                  // the host starts as lost, because its agent is not connected
    char name[HOST_NAME_BYTES]; // for messages; may be empty if there is one host
};

struct core_config {
    int host_count; // 1..HOSTS_MAX
    struct core_host hosts[HOSTS_MAX];
    bool spares;               // hot spares: daemon/core/twin.h
    uint64_t spare_delay_ns;   // a spare starts this long after its pool is ready
    int ranks_per_device;      // 1..WORLD_SIZE_MAX; if more than 1, a pool with more ranks than
                               // devices uses all devices of its hosts
    int queue_max;             // jobs queued and running, 1..JOBS_MAX
    int user_queue_max;        // jobs of one user, up to queue_max; 0: queue_max
    struct user_limits user;   // limits of one user's running jobs; further jobs wait
    uint64_t timeout_max_ns;   // largest timeout of a request; 0: no limit
    uint64_t memory_max;       // bytes of all running jobs together; 0: no limit
    int ranks_max;             // processes alive over all pools
    uint64_t start_timeout_ns; // from START to the last READY; > 0
    uint64_t peer_grace_ns;    // how long the core waits for the cause after a "peer lost" report
    uint64_t idle_timeout_ns;  // an idle pool without waiting jobs is stopped after this; 0: never
    uint64_t kill_timeout_ns;  // from KILL until ranks that are not reaped count as stuck; > 0
    int guest_count;           // 0..GUESTS_MAX
    struct core_guest guests[GUESTS_MAX];
};

// Limits that may change while the daemon runs.
struct core_limits {
    int user_queue_max;       // as in core_config
    uint64_t idle_timeout_ns; // for pools that are idle, counts from the change
    struct user_limits user;
    uint64_t timeout_max_ns;
    uint64_t memory_max; // a waiting job that needs more than this runs alone
};

#endif
