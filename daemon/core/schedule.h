// SPDX-License-Identifier: Apache-2.0
// Assigns jobs to pools. Users take turns by the device time that they have used (users.h). The
// jobs of one user run in order of admission. The devices that a job waits for are reserved from
// later jobs, so that no stream of small jobs can starve a large one.
#ifndef CPATTN_DAEMON_CORE_SCHEDULE_H
#define CPATTN_DAEMON_CORE_SCHEDULE_H

struct core;

// Runs jobs, starts pools and stops idle pools to make room; then starts spares. Call after every
// event.
void schedule_pass(struct core *core);

#endif
