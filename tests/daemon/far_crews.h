// SPDX-License-Identifier: Apache-2.0
// Crews with ranks on other hosts only, so that no process is started. Records what is asked of the
// hosts and what the crews report. Every function fails the running test when it cannot do its
// work.
#ifndef CPATTN_TESTS_DAEMON_FAR_CREWS_H
#define CPATTN_TESTS_DAEMON_FAR_CREWS_H

#include "daemon/pool/crew.h"

struct far_crews {
    struct ev_loop *loop;
    struct crews *crews;
    int starts;              // starts of a pool on its hosts
    int kills[HOSTS_MAX];    // by host
    int failed, exited;      // reports to the core
    uint64_t not_started;    // the same: a bit of each host
    uint32_t generation;     // of the last start
    const char *const *name; // of each host; borrowed
};

void far_crews_init(struct far_crews *f, const char *const *names);
void far_crews_fini(struct far_crews *f);

// Starts pool 0 with a rank on each of these hosts, in their order.
struct crew *far_crews_start(struct far_crews *f, const int *hosts, int world_size);

// Identifies a rank of the last start.
struct far_rank far_crews_rank(const struct far_crews *f, int rank);

#endif
