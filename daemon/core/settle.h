// SPDX-License-Identifier: Apache-2.0
// What every event of the core begins and ends with.
#ifndef CPATTN_DAEMON_CORE_SETTLE_H
#define CPATTN_DAEMON_CORE_SETTLE_H

#include <stdint.h>

struct core;

// Lets time go on.
void settle_begin(struct core *core, uint64_t now_ns);

// Acts on what has changed: deadlines that have passed, devices and hosts that are out of use, jobs
// that can run.
void settle_end(struct core *core);

#endif
