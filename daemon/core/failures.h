// SPDX-License-Identifier: Apache-2.0
// Consecutive failed starts of a pool: the pause before the next start, and the jobs that do not
// wait for it. After five failures the pool is DOWN; starts are still retried. A failed start
// counts half if a rank was killed from outside, which says less about the next start.
#ifndef CPATTN_DAEMON_CORE_FAILURES_H
#define CPATTN_DAEMON_CORE_FAILURES_H

#include <stdint.h>

// Failures are counted in halves of a failed start.
#define FAILURE_WHOLE 2
#define FAILURE_HALF  1
#define FAILURES_MAX  (5 * FAILURE_WHOLE)

struct core;
struct pool;
struct size;

// Returns the failures of starts of the same kind (to work or to stand by) as the pool's last
// start.
const struct failures *failures_of(const struct pool *pool);

// Counts a failed start of the pool; `weight` is FAILURE_WHOLE or FAILURE_HALF.
void failures_note(struct core *core, struct pool *pool, int weight);

// Resets the count, because the pool is up.
void failures_forget(struct pool *pool);

// Returns the pause before the next start of the pool, all of whose ranks are reaped.
uint64_t failures_pause_ns(const struct core *core, const struct pool *pool);

// Returns the time since which all pools of the size are DOWN. Pools with unusable devices do not
// count. TIMERS_NEVER: not all are DOWN, or none counts.
uint64_t failures_down_ns(const struct core *core, const struct size *size);

// Returns the pool of the size that was lost last; the first pool if none was lost.
struct pool *failures_culprit(const struct size *size);

// If all pools of the size have been DOWN for patience_ns of a queued job, or the core is draining
// and they are DOWN: answers the job.
void failures_refuse_waiting(struct core *core, struct size *size);

#endif
