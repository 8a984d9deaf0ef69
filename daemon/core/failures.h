// SPDX-License-Identifier: Apache-2.0
// Starts of a pool that fail in a row: how long to wait before the next, and for whom the wait is
// too long. After FAILURES_MAX of them the pool is DOWN; it is tried again all the same.
#ifndef CPATTN_DAEMON_CORE_FAILURES_H
#define CPATTN_DAEMON_CORE_FAILURES_H

#include <stdint.h>

#define FAILURES_MAX 5

struct core;
struct pool;
struct size;

// Starts in a row that failed.
struct failures {
    int count;         // 0..FAILURES_MAX, where it stays
    uint64_t since_ns; // when the first of them failed
    uint64_t down_ns;  // when their count became FAILURES_MAX
};

// Those of starts of the kind that the pool's last one was: for a job, or to stand by.
const struct failures *failures_of(const struct pool *pool);

// The pool's start has failed; it has come up.
void failures_note(struct core *core, struct pool *pool);
void failures_forget(struct pool *pool);

// How long the pool, whose ranks are reaped, is not to be started.
uint64_t failures_pause_ns(const struct core *core, const struct pool *pool);

// Since when all pools of the size are DOWN, without those whose devices others are stuck on;
// TIMERS_NEVER: they are not, or all are without devices.
uint64_t failures_down_ns(const struct core *core, const struct size *size);

// The pool of the size that was lost last.
struct pool *failures_culprit(const struct size *size);

// Answers those that wait for a size whose pools have been DOWN for longer than they have patience.
void failures_refuse_waiting(struct core *core, struct size *size);

#endif
