// SPDX-License-Identifier: Apache-2.0
// A one-shot timer of the loop for an absolute time, which can be set again.
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
void alarm_fini(struct alarm *a); // accepts an alarm that is not set

// Calls `ring` once at a time of CLOCK_MONOTONIC. Replaces an earlier time; UINT64_MAX: no alarm.
void alarm_set(struct alarm *a, uint64_t at_ns);

#endif
