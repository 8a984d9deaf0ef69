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

// A host that ranks run on; the first is this one.
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
    int ranks_per_device;     // of a pool; more than 1: where there are too few devices
    bool spares;              // each pool has a spare
    uint64_t idle_timeout_ns;
    struct user_limits user;         // of the running cases of one user
    int user_queue_max;              // cases of one user, up to the description's queue_max
    struct user_list allowed;        // empty: everybody
    struct user_list administrators; // in addition to root and the daemon's user
    struct subject_list subjects;    // allowed over a network; empty: everybody
    struct token token;              // of network clients; "": not required
    int descriptors_max;             // limit of this process
    struct device_rates rates;       // of the devices
    struct loop_lag *lag;            // of the daemon's loop; borrowed
    int host_count;                  // 1..HOSTS_MAX
    struct service_host hosts[HOSTS_MAX];
};

#endif
