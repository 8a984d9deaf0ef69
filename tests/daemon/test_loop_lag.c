// SPDX-License-Identifier: Apache-2.0
// The durations of the rounds of the daemon's loop.
#include "daemon/service/loop_lag.h"

#include <time.h>

#include "tests/support/runner.h"

#define US UINT64_C(1000)
#define S  UINT64_C(1000000000)

static struct loop_lag lag;
static uint64_t longest, p99;

static void begin(void)
{
    lag = (struct loop_lag){.awake_ns = 0};
}

static void tell(uint64_t now_ns)
{
    loop_lag_tell(&lag, now_ns, &longest, &p99);
}

START_TEST(before_the_first_round_the_figures_are_zero)
{
    tell(5 * S);
    ck_assert_uint_eq(longest, 0);
    ck_assert_uint_eq(p99, 0);
}
END_TEST

START_TEST(one_round_in_a_hundred_is_left_out)
{
    for (int i = 0; i < 198; i++)
        loop_lag_note(&lag, S, 100 * US);
    loop_lag_note(&lag, S, 7000 * US);
    loop_lag_note(&lag, S, 9000 * US);
    tell(S);
    ck_assert_uint_eq(longest, 9000 * US);
    ck_assert_uint_ge(p99, 100 * US);
    ck_assert_uint_le(p99, 113 * US);
    loop_lag_note(&lag, S, 8000 * US);
    tell(S);
    ck_assert_uint_ge(p99, 7000 * US);
    ck_assert_uint_le(p99, 7900 * US);
}
END_TEST

// The reported time is not less than the actual time, and at most an eighth more.
START_TEST(times_of_any_size_are_reported)
{
    for (uint64_t ns = 1; ns < 400 * S; ns += 1 + ns / 37) {
        begin();
        loop_lag_note(&lag, S, ns);
        tell(S);
        ck_assert_uint_eq(longest, ns);
        ck_assert_uint_eq(p99, ns);
        loop_lag_note(&lag, S, 2 * ns + 1000 * S);
        for (int i = 0; i < 200; i++)
            loop_lag_note(&lag, S, ns);
        tell(S);
        ck_assert_uint_ge(p99, ns);
        ck_assert_uint_le(p99, ns + ns / 8 + 1);
    }
}
END_TEST

START_TEST(older_windows_are_dropped)
{
    loop_lag_note(&lag, S, 5000 * US);
    tell(LAG_WINDOW_NS + S);
    ck_assert_uint_eq(longest, 5000 * US);
    loop_lag_note(&lag, LAG_WINDOW_NS + 2 * S, 40 * US);
    tell(2 * LAG_WINDOW_NS + 2 * S);
    ck_assert_uint_eq(longest, 40 * US);
    tell(5 * LAG_WINDOW_NS);
    ck_assert_uint_eq(longest, 0);
}
END_TEST

static void spin(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)loop;
    (void)watcher;
    (void)events;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &to);
    while ((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000 < 20);
}

static void done(struct ev_loop *loop, ev_timer *watcher, int events)
{
    (void)watcher;
    (void)events;
    ev_break(loop, EVBREAK_ALL);
}

// A real loop. A timer spins for 20 ms, and the longest round is at least as long.
START_TEST(a_loop_is_watched)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    ev_timer busy, end;
    ev_timer_init(&busy, spin, 0.2, 0.);
    ev_timer_init(&end, done, 0.4, 0.);
    ev_timer_start(loop, &busy);
    ev_timer_start(loop, &end);
    loop_lag_start(&lag, loop);
    ev_run(loop, 0);
    ev_loop_destroy(loop);
    uint64_t rounds = lag.windows[0].rounds;
    tell(lag.windows[0].begin_ns);
    ck_assert_uint_ge(rounds, 1);
    ck_assert_uint_ge(longest, 19 * 1000 * US);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop_lag");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin, NULL);
    tcase_add_test(all, before_the_first_round_the_figures_are_zero);
    tcase_add_test(all, one_round_in_a_hundred_is_left_out);
    tcase_add_test(all, times_of_any_size_are_reported);
    tcase_add_test(all, older_windows_are_dropped);
    tcase_add_test(all, a_loop_is_watched);
    suite_add_tcase(suite, all);
    return runner_run(suite);
}
