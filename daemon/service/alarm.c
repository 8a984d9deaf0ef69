// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/alarm.h"

#include "common/clock.h"

static void on_time(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)events;
    struct alarm *a = watcher->data;
    a->at_ns = UINT64_MAX;
    a->ring(a->context);
}

void alarm_init(struct alarm *a, struct ev_loop *loop, void (*ring)(void *context), void *context)
{
    *a = (struct alarm){.loop = loop, .at_ns = UINT64_MAX, .ring = ring, .context = context};
    ev_init(&a->timer, on_time);
    a->timer.data = a;
}

void alarm_fini(struct alarm *a)
{
    ev_timer_stop(a->loop, &a->timer);
}

void alarm_set(struct alarm *a, uint64_t at_ns)
{
    if (at_ns == a->at_ns)
        return;
    a->at_ns = at_ns;
    ev_timer_stop(a->loop, &a->timer);
    if (at_ns == UINT64_MAX)
        return;
    uint64_t now_ns = clock_now_ns();
    double delay = at_ns > now_ns ? (double)(at_ns - now_ns) / (double)NS_PER_S : 0.;
    ev_now_update(a->loop); // timers count from the cached time of the loop
    ev_timer_set(&a->timer, delay, 0.);
    ev_timer_start(a->loop, &a->timer);
}
