// SPDX-License-Identifier: Apache-2.0
// Hot spares: every pool has a twin of the same world size on the same devices. If both are up, the
// older one leads and runs the jobs; the younger one stands by. Without spares there are no twins,
// and every pool leads.
//
// A pool that is started to stand by has no lease while it starts, because its twin works. Its
// failed starts are counted separately and do not affect the twin.
#ifndef CPATTN_DAEMON_CORE_TWIN_H
#define CPATTN_DAEMON_CORE_TWIN_H

#include <stdbool.h>
#include <stdint.h>

struct pool;

// True if the pool is starting, idle or working.
bool twin_is_up(const struct pool *pool);

// True if the pool and its twin are up and the twin is older.
bool twin_stands_by(const struct pool *pool);

// True if jobs may use the pool: it is up and does not stand by, or neither it nor its twin is up.
bool twin_leads(const struct pool *pool);

// True if the pool may not be started for a job yet: it is in BACKOFF, or its twin is in BACKOFF
// and was not started to stand by.
bool twin_rests(const struct pool *pool);

// True if the twin was killed and still leases the devices, because the driver needs time to
// release them. Only this pool may use the devices meanwhile.
bool twin_hands_over(const struct pool *pool);

#endif
