// SPDX-License-Identifier: Apache-2.0
// Failed starts in a row of a pool: how long the pause before the next start is, and which jobs do
// not wait for it. After FAILURES_MAX of them the pool is DOWN; it is tried again all the same.
#ifndef CPATTN_DAEMON_CORE_FAILURES_H
#define CPATTN_DAEMON_CORE_FAILURES_H

#include <stdint.h>

#define FAILURES_MAX 5

struct core;
struct pool;
struct size;

// Those of starts of the kind that the pool's last one was: for a job, or to stand by.
const struct failures *failures_of(const struct pool *pool);

// Counts a start of the pool that has failed.
void failures_note(struct core *core, struct pool *pool);

// Begins anew, since the pool is up.
void failures_forget(struct pool *pool);

// How long to wait before the pool, whose ranks are reaped, may be started again.
uint64_t failures_pause_ns(const struct core *core, const struct pool *pool);

// Since when all pools of the size are DOWN. Pools whose devices are held by ranks that are stuck
// do not count. TIMERS_NEVER: not all are DOWN, or none counts.
uint64_t failures_down_ns(const struct core *core, const struct size *size);

// The pool of the size that was lost last.
struct pool *failures_culprit(const struct size *size);

// Answers the jobs of the size whose patience is over, if all its pools are DOWN; when draining,
// all of its jobs.
void failures_refuse_waiting(struct core *core, struct size *size);

#endif
