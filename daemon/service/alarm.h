// SPDX-License-Identifier: Apache-2.0
// A timer of the loop for a single time, which may be set repeatedly.
#ifndef CPATTN_DAEMON_SERVICE_ALARM_H
#define CPATTN_DAEMON_SERVICE_ALARM_H

#include <ev.h>
#include <stdint.h>

struct alarm {
    struct ev_loop *loop;
    ev_timer timer;
    uint64_t at_ns; // UINT64_MAX: not set
    void (*ring)(void *context);
    void *context;
};

void alarm_init(struct alarm *a, struct ev_loop *loop, void (*ring)(void *context), void *context);
void alarm_fini(struct alarm *a); // accepts one that was not set

// Sets the alarm to one time of CLOCK_MONOTONIC, which replaces an earlier one; UINT64_MAX: none.
void alarm_set(struct alarm *a, uint64_t at_ns);

#endif
