// SPDX-License-Identifier: Apache-2.0
// The common begin and end of every event of the core.
#ifndef CPATTN_DAEMON_CORE_SETTLE_H
#define CPATTN_DAEMON_CORE_SETTLE_H

#include <stdint.h>

struct core;

// Sets the time, and charges running jobs for the time since the last event.
void settle_begin(struct core *core, uint64_t now_ns);

// Handles passed deadlines, stops pools on devices out of use, and dispatches jobs.
void settle_end(struct core *core);

#endif
