// SPDX-License-Identifier: Apache-2.0
// How the ranks ended that pools were lost by, for the status: the pool core knows that one has
// exited, the process knows how.
#ifndef CPATTN_DAEMON_SERVICE_FATES_H
#define CPATTN_DAEMON_SERVICE_FATES_H

#include "daemon/core/core.h"
#include "daemon/pool/crew.h"
#include "proto/wire.h"

struct fates {
    struct fate {
        uint32_t generation; // of the crew; 0: free
        int implementation, world_size, instance, rank;
        char text[FATE_MAX]; // "": not reaped yet
    } list[POOLS_MAX];
    int next;                 // the oldest
    int instances[POOLS_MAX]; // of the crews, by pool
};

// A zeroed one is empty. The crew of a START; a KILL, with the rank that is its cause; a rank that
// is reaped.
void fates_start(struct fates *f, const struct action *start);
void fates_kill(struct fates *f, const struct action *kill, const struct crew *crew);
void fates_exit(struct fates *f, const struct crew *crew, int rank);

// Says of pools that were lost by a rank's end how that was.
void fates_tell(const struct fates *f, struct wire_pool *pools, int count);

#endif
