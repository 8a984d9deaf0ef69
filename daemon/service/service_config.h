// SPDX-License-Identifier: Apache-2.0
// Configuration of a service: the machine as described to clients, and the settings.
#ifndef CPATTN_DAEMON_SERVICE_SERVICE_CONFIG_H
#define CPATTN_DAEMON_SERVICE_SERVICE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"
#include "daemon/core/users.h"
#include "daemon/machine/time_bounds.h"
#include "daemon/process/confine.h"
#include "daemon/service/loop_lag.h"
#include "daemon/settings/guests.h"
#include "daemon/settings/subject_list.h"
#include "daemon/settings/user_list.h"
#include "proto/wire.h"

// A host that ranks run on.
struct service_host {
    char name[HOST_NAME_BYTES];
    int device_count;
};

struct service_config {
    struct wire_description description; // as sent to clients; its limits are enforced
    const char *rank_program;            // borrowed
    const struct guests *guests;         // borrowed; in the order of the description
    struct confinement confinement;
    uint64_t start_timeout_ns;
    uint64_t kill_timeout_ns; // from a rank's SIGKILL until its devices are out of use
    int ranks_per_device;     // upper bound for one pool; > 1 is used only if devices are too few
    bool spares;              // each pool has a spare
    uint64_t idle_timeout_ns;
    struct user_limits user;              // limits of the running cases of one user
    int user_queue_max;                   // queued and running cases of one user, at most queue_max
    struct user_list allowed;             // empty: everybody
    struct user_list administrators;      // in addition to root and the daemon's user
    struct subject_list subjects;         // subjects of network clients that are served; empty: all
    struct token token;                   // of network clients; "": not required
    int descriptors_max;                  // descriptors of this process for the start of a pool
    struct device_rates rates;            // upper bounds of the speed of this host's devices
    struct loop_lag *lag;                 // of the daemon's loop; borrowed
    int host_count;                       // 1..HOSTS_MAX
    struct service_host hosts[HOSTS_MAX]; // [host_count], this host first
};

#endif
