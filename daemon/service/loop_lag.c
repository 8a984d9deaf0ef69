// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/loop_lag.h"

#include <stdbool.h>
#include <string.h>

#include "common/clock.h"

// Number of buckets from 2^k to 2^(k+1) ns. Each number of ns below 8 has a bucket of its own.
#define STEPS      8
#define STEPS_LOG2 3

static int bucket_of(uint64_t ns)
{
    if (ns < STEPS)
        return (int)ns;
    int exponent = 63 - __builtin_clzll(ns);
    int bucket = ((exponent - STEPS_LOG2 + 1) << STEPS_LOG2) +
                 (int)(ns >> (exponent - STEPS_LOG2) & (STEPS - 1));
    return bucket < LAG_BUCKETS ? bucket : LAG_BUCKETS - 1;
}

// The longest time in a bucket.
static uint64_t bucket_last_ns(int bucket)
{
    int exponent = (bucket >> STEPS_LOG2) + STEPS_LOG2 - 1;
    uint64_t width_ns = bucket < STEPS ? 1 : UINT64_C(1) << (exponent - STEPS_LOG2);
    uint64_t first_ns =
        bucket < STEPS ? (uint64_t)bucket : (uint64_t)(STEPS + (bucket & (STEPS - 1))) * width_ns;
    return first_ns + width_ns - 1;
}

// Begins a new window if the current one is over, which then becomes the previous one.
static void windows_turn(struct loop_lag *lag, uint64_t now_ns)
{
    if (now_ns < lag->windows[0].begin_ns + LAG_WINDOW_NS)
        return;
    bool follows = now_ns < lag->windows[0].begin_ns + 2 * LAG_WINDOW_NS;
    lag->windows[1] = follows ? lag->windows[0] : (struct lag_window){.begin_ns = 0};
    lag->windows[0] = (struct lag_window){.begin_ns = now_ns};
}

void loop_lag_note(struct loop_lag *lag, uint64_t now_ns, uint64_t round_ns)
{
    windows_turn(lag, now_ns);
    struct lag_window *w = &lag->windows[0];
    w->rounds++;
    w->buckets[bucket_of(round_ns)]++;
    if (round_ns > w->longest_ns)
        w->longest_ns = round_ns;
}

void loop_lag_tell(struct loop_lag *lag, uint64_t now_ns, uint64_t *longest_ns, uint64_t *p99_ns)
{
    const struct lag_window *w = lag->windows;
    windows_turn(lag, now_ns);
    uint64_t rounds = w[0].rounds + w[1].rounds, left = rounds - rounds / 100, last_ns = 0;
    *longest_ns = w[0].longest_ns > w[1].longest_ns ? w[0].longest_ns : w[1].longest_ns;
    for (int i = 0; i < LAG_BUCKETS && left > 0; i++) {
        uint64_t here = w[0].buckets[i] + w[1].buckets[i];
        left -= here < left ? here : left;
        last_ns = here > 0 ? bucket_last_ns(i) : last_ns;
    }
    *p99_ns = last_ns < *longest_ns ? last_ns : *longest_ns;
}

static void on_awake(struct ev_loop *loop, ev_check *watcher, int events)
{
    (void)loop;
    (void)events;
    struct loop_lag *lag = watcher->data;
    lag->awake_ns = clock_now_ns();
}

static void on_asleep(struct ev_loop *loop, ev_prepare *watcher, int events)
{
    (void)loop;
    (void)events;
    struct loop_lag *lag = watcher->data;
    uint64_t now_ns = clock_now_ns();
    if (lag->awake_ns > 0)
        loop_lag_note(lag, now_ns, now_ns - lag->awake_ns);
    lag->awake_ns = 0;
}

// The priorities make on_awake() the first callback after a wait and on_asleep() the last one
// before the next wait.
void loop_lag_start(struct loop_lag *lag, struct ev_loop *loop)
{
    memset(lag, 0, sizeof(*lag));
    lag->windows[0].begin_ns = clock_now_ns();
    ev_check_init(&lag->awake, on_awake);
    ev_set_priority(&lag->awake, EV_MAXPRI);
    ev_prepare_init(&lag->asleep, on_asleep);
    ev_set_priority(&lag->asleep, EV_MINPRI);
    lag->awake.data = lag->asleep.data = lag;
    ev_check_start(loop, &lag->awake);
    ev_prepare_start(loop, &lag->asleep);
}
