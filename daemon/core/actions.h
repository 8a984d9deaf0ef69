// SPDX-License-Identifier: Apache-2.0
// The queue of actions that the service has not taken yet. Its length is bounded: a job is answered
// once, and each pool gets at most one START, RUN, KILL and STUCK before the service reports an
// event of the pool.
#ifndef CPATTN_DAEMON_CORE_ACTIONS_H
#define CPATTN_DAEMON_CORE_ACTIONS_H

#include <stdbool.h>

#include "daemon/core/action.h"

struct actions {
    struct action *ring; // [capacity]
    int capacity, first, count;
};

// For at most `jobs` jobs. False when memory is short; actions_fini() accepts this state and a
// zeroed one.
bool actions_init(struct actions *a, int jobs);
void actions_fini(struct actions *a);

void actions_push(struct actions *a, const struct action *action);
// Takes the oldest action. False when there is none.
bool actions_pop(struct actions *a, struct action *action);

#endif
