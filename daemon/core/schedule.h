// SPDX-License-Identifier: Apache-2.0
// Which job goes to which pool. Fair: jobs are looked at in order of admission, and what an earlier
// job waits for is kept from later ones, so that no stream of small jobs can starve a large one.
#ifndef CPATTN_DAEMON_CORE_SCHEDULE_H
#define CPATTN_DAEMON_CORE_SCHEDULE_H

struct core;

// Runs, starts and makes room as far as possible, and with what is left starts spares. To be called
// after every event.
void schedule_pass(struct core *core);

#endif
