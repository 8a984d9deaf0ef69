// SPDX-License-Identifier: Apache-2.0
// Which job goes to which pool. Fair: users take turns by the device time that they have used
// (users.h), the jobs of each go in order of admission, and what a job waits for is kept from those
// behind it, so that no stream of small jobs can starve a large one.
#ifndef CPATTN_DAEMON_CORE_SCHEDULE_H
#define CPATTN_DAEMON_CORE_SCHEDULE_H

struct core;

// Runs, starts and makes room as far as possible, and with what is left starts spares. To be called
// after every event.
void schedule_pass(struct core *core);

#endif
