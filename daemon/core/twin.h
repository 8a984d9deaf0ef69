// SPDX-License-Identifier: Apache-2.0
// Hot spares: every pool has a twin of the same world size on the same devices. Of two that are up
// the older leads, which is to say that jobs run in it; the younger stands by. Without spares there
// are no twins, and every pool leads.
//
// A pool that is started to stand by leases nothing while it starts, as its twin works. What it
// cannot do it does not do to its twin either: its failed starts are counted apart.
#ifndef CPATTN_DAEMON_CORE_TWIN_H
#define CPATTN_DAEMON_CORE_TWIN_H

#include <stdbool.h>
#include <stdint.h>

struct pool;

// It starts, waits or works.
bool twin_is_up(const struct pool *pool);

// Both are up, and the other is older.
bool twin_stands_by(const struct pool *pool);

// Jobs may have it: it is up and does not stand by, or it is not up and neither is its twin.
bool twin_leads(const struct pool *pool);

// It may not be started for a job yet, because of failed starts of its own or of its twin in its
// stead.
bool twin_rests(const struct pool *pool);

// The twin still holds their devices although it was killed, and leaves them to this one alone. A
// driver takes its time to take down what used a device.
bool twin_hands_over(const struct pool *pool);

#endif
