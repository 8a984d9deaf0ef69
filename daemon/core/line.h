// SPDX-License-Identifier: Apache-2.0
// Lines: the jobs of one user that wait for one size, in order of admission. The
// job of the user who has used least device time goes first, among these the one that was admitted
// first. But a job that was first and could not run while devices were idle is pinned: it goes
// first until it runs. Else those who use little could for long keep all devices from one that
// needs many at a time.
#ifndef CPATTN_DAEMON_CORE_LINE_H
#define CPATTN_DAEMON_CORE_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"

struct account;
struct core;
struct job;
struct size;

// The line of the account for the size; NULL: there is none.
struct line *line_find(struct size *size, const struct account *account);

void line_init(struct core *core, struct line *line);

// A queued job goes to the end of its line, or leaves it.
void line_join(struct core *core, struct job *job);
void line_leave(struct core *core, struct job *job);

// Whether a queued job goes before another.
bool line_goes_before(const struct core *core, const struct job *job, const struct job *other);

// Before time goes on: pins the job that has been first while devices were idle, unless another is
// pinned. One that can have no pool as things are, because of devices that are out of use or of
// starts that fail, is not pinned, or no longer.
void line_pin(struct core *core);

// Jobs of its size that go before the queued job, and how many of them are of its own user.
int line_before(const struct core *core, const struct job *job, int *own);

#endif
