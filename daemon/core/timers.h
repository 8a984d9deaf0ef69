// SPDX-License-Identifier: Apache-2.0
// Timers by id in a binary heap: set and clear in O(log n), the earliest in O(1). Each id has at
// most one timer. Allocates only in timers_init().
#ifndef CPATTN_DAEMON_CORE_TIMERS_H
#define CPATTN_DAEMON_CORE_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

#define TIMERS_NEVER UINT64_MAX

struct timers {
    uint64_t *at_ns; // [ids], valid while set
    int *heap_at;    // [ids], 1 + index in the heap; 0: not set
    int *heap;       // [count] ids
    int ids, count;
};

// Ids are 0..ids-1. False when memory is short; timers_fini() accepts this state and a zeroed one.
bool timers_init(struct timers *t, int ids);
void timers_fini(struct timers *t);

// Sets or moves the timer of an id; TIMERS_NEVER clears it.
void timers_set(struct timers *t, int id, uint64_t at_ns);
// Clears the timer of an id; no effect if it is not set.
void timers_clear(struct timers *t, int id);
bool timers_is_set(const struct timers *t, int id);

// Time of the earliest timer; TIMERS_NEVER: none is set.
uint64_t timers_next_ns(const struct timers *t);
// Clears the earliest timer if it is due, and returns its id; -1: none is due.
int timers_take_due(struct timers *t, uint64_t now_ns);

// Aborts when the heap is out of order.
void timers_assert(const struct timers *t);

#endif
