// SPDX-License-Identifier: Apache-2.0
// Lines: the jobs of one user that wait for one size, in order of admission. The next job is the
// oldest job of the user with the least used device time. Exception: a job that was next and could
// not run although devices were idle is pinned, and stays next until it runs. Without this, users
// with little used time could keep the devices from a large job for a long time.
#ifndef CPATTN_DAEMON_CORE_LINE_H
#define CPATTN_DAEMON_CORE_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/list.h"

struct account;
struct core;
struct job;
struct size;

// Returns the line of the account for the size; NULL: there is none.
struct line *line_find(struct size *size, const struct account *account);

// Puts a new line on the list of free lines.
void line_init(struct core *core, struct line *line);

// line_join() adds a queued job to the end of its line; line_leave() removes it.
void line_join(struct core *core, struct job *job);
void line_leave(struct core *core, struct job *job);

// True if a queued job comes before another.
bool line_goes_before(const struct core *core, const struct job *job, const struct job *other);

// Call before the time advances. Pins the first job if it waits although devices are idle, unless
// another job is pinned. A pinned job that no longer has a possible pool (devices out of use,
// failing starts) is released.
void line_pin(struct core *core);

// Returns the number of queued jobs of the same size that come before the job. *own: how many of
// them are its user's.
int line_before(const struct core *core, const struct job *job, int *own);

#endif
