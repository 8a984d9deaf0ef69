// SPDX-License-Identifier: Apache-2.0
// Measures how long rounds of the daemon's loop take, from the end of one wait for events to the
// beginning of the next. An event waits for at most one round.
#ifndef CPATTN_DAEMON_SERVICE_LOOP_LAG_H
#define CPATTN_DAEMON_SERVICE_LOOP_LAG_H

#include <ev.h>
#include <stdint.h>

// Length of a window. The figures cover two windows: the last minute or two.
#define LAG_WINDOW_NS (UINT64_C(60) * 1000000000)

#define LAG_BUCKETS 320

// Histogram of round times: eight buckets per power of two.
struct lag_window {
    uint64_t begin_ns, rounds, longest_ns;
    uint64_t buckets[LAG_BUCKETS];
};

struct loop_lag {
    ev_check awake;
    ev_prepare asleep;
    uint64_t awake_ns;            // when the round began; 0: not in one
    struct lag_window windows[2]; // this minute, and the one before
};

// Records a round of length round_ns that ended at now_ns. Reads no clock.
void loop_lag_note(struct loop_lag *lag, uint64_t now_ns, uint64_t round_ns);

// Returns the longest round, and a time that 99 of 100 rounds did not exceed, which is at most an
// eighth too high. Both are 0 before the first round.
void loop_lag_tell(struct loop_lag *lag, uint64_t now_ns, uint64_t *longest_ns, uint64_t *p99_ns);

// Measures the loop until the loop is destroyed. The struct must not move until then.
void loop_lag_start(struct loop_lag *lag, struct ev_loop *loop);

#endif
