// SPDX-License-Identifier: Apache-2.0
// The pool core: scheduling of many jobs on devices, fairness, limits of ranks and pools, draining,
// status.
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static void begin(void)
{
    struct core_config config = fixture_config();
    fixture_begin(&config);
}

// ---- devices -----------------------------------------------------------------------------------

START_TEST(pools_of_one_world_size_run_side_by_side)
{
    submit(2);
    struct action start = expect(ACTION_START);
    ck_assert_uint_eq(start.devices, 0x3);
    submit(2);
    start = expect(ACTION_START);
    ck_assert_int_eq(start.instance, 1);
    ck_assert_uint_eq(start.devices, 0xc);
    submit(2);
    expect_none(); // the devices suffice for two pools
}
END_TEST

START_TEST(an_idle_pool_is_used_before_another_is_started)
{
    struct ranks ranks = pool_up(2);
    struct action run = run_in(ranks);
    run_finish(ranks, run);
    run_in(ranks);
    submit(2);
    expect_start(2, 1);
}
END_TEST

START_TEST(jobs_that_share_a_device_take_turns)
{
    struct ranks two = pool_up(2), four = pool_up(4);
    struct action run = run_in(two);
    int slot = submit(4);
    expect_none();
    run_finish(two, run);
    run = expect_run(four, slot); // the idle pool of two ranks stays up
    slot = submit(2);
    expect_none();
    run_finish(four, run);
    expect_run(two, slot);
}
END_TEST

START_TEST(devices_are_free_when_killed_ranks_are_reaped)
{
    struct ranks two = pool_up(2), four = pool_up(4);
    struct action run = run_in(two);
    int slot = submit(4);
    rank_dies(two, 0);
    expect_answer(run.slot, CAUSE_RANK_EXITED, 0);
    expect_kill(two);
    rank_dies(two, 1);
    expect_run(four, slot);
}
END_TEST

START_TEST(a_pool_may_be_larger_than_the_devices_only_if_allowed)
{
    submit_refused(5, STATUS_FAILED_PRECONDITION, "the daemon has 4");
    struct core_config config = fixture_config();
    config.ranks_per_device = 2;
    fixture_again(&config);
    submit_refused(9, STATUS_FAILED_PRECONDITION, "4 devices with at most 2 ranks on each");
    submit(5);
    struct action start = expect(ACTION_START);
    ck_assert_uint_eq(start.devices, 0xf);
    submit(5);
    submit(2);
    expect_none(); // all devices are taken
}
END_TEST

START_TEST(the_largest_machine)
{
    struct core_config config = fixture_config();
    config.hosts[0].device_count = DEVICES_MAX;
    config.ranks_max = RANKS_MAX;
    config.queue_max = JOBS_MAX;
    fixture_again(&config);
    submit(WORLD_SIZE_MAX);
    struct action start = expect(ACTION_START);
    ck_assert_uint_eq(start.devices, UINT64_MAX);
    struct ranks large = {start.pool, WORLD_SIZE_MAX, start.generation};
    ranks_ready(large);
    struct action run = expect(ACTION_RUN);
    run_finish(large, run);
    // POOLS_MAX pools are up. The idle one makes room for one more.
    for (int i = 0; i < POOLS_MAX - 1; i++) {
        submit(1);
        struct ranks one = start_ready(1, i);
        run = expect(ACTION_RUN);
        ck_assert_int_eq(run.pool, one.pool);
    }
    int last = submit(1);
    expect_kill(large);
    ranks_reap(large);
    expect_run(start_ready(1, POOLS_MAX - 1), last);
    // The status has no place for the cold pool.
    struct wire_status status = {0};
    struct wire_pool pools[POOLS_MAX];
    core_status(f.core, &status, pools);
    ck_assert_int_eq(status.pool_count, POOLS_MAX);
    for (int i = 0; i < POOLS_MAX; i++)
        ck_assert_int_eq(pools[i].state, POOL_RUNNING);
}
END_TEST

// ---- fairness ----------------------------------------------------------------------------------

START_TEST(jobs_run_in_order_of_admission)
{
    struct ranks ranks = pool_up(4);
    struct action run = run_in(ranks);
    int slots[5];
    for (int i = 0; i < 5; i++)
        slots[i] = submit(4);
    for (int i = 0; i < 5; i++) {
        run_finish(ranks, run);
        run = expect_run(ranks, slots[i]);
    }
}
END_TEST

START_TEST(a_stream_of_small_jobs_does_not_starve_a_large_one)
{
    struct ranks one[4], two = pool_up(2);
    struct action runs[4];
    for (int i = 0; i < 4; i++) {
        submit(1);
        one[i] = start_ready(1, i);
        runs[i] = expect(ACTION_RUN);
    }
    int large = submit(2);
    // Device 0 becomes free and stays reserved for the large job. Device 2 is not reserved.
    run_finish(one[0], runs[0]);
    int small = submit(1);
    expect_none();
    run_finish(one[2], runs[2]);
    runs[2] = expect_run(one[2], small);
    // The large job keeps waiting for the pair with the fewest devices in use.
    small = submit(1);
    run_finish(one[1], runs[1]);
    expect_run(two, large);
    run_finish(one[3], runs[3]);
    expect_run(one[3], small);
}
END_TEST

START_TEST(devices_without_reservation_are_used_by_later_jobs)
{
    struct ranks four = pool_up(4), one = pool_up(1);
    struct action run = run_in(one);
    int large = submit(4);
    int small = submit(1);
    expect_none(); // the large one waits for all devices
    run_finish(one, run);
    run = expect_run(four, large);
    run_finish(four, run);
    expect_run(one, small);
}
END_TEST

START_TEST(devices_are_not_reserved_for_a_pool_in_backoff)
{
    submit(4);
    fail_starts(expect_start(4, 0), 2);
    submit(1);
    struct ranks one = start_ready(1, 0);
    struct action run = expect(ACTION_RUN);
    pass(250 * MS);
    expect_none();
    submit(1);
    expect_none(); // the pause is over: they are reserved
    run_finish(one, run);
    expect_start(4, 0);
}
END_TEST

START_TEST(no_more_pools_are_started_than_jobs_wait)
{
    submit(1);
    struct ranks first = expect_start(1, 0);
    pass(MS);
    expect_none();
    int second = submit(1);
    struct ranks other = expect_start(1, 1);
    ranks_ready(first);
    expect(ACTION_RUN);
    ranks_ready(other);
    expect_run(other, second);
}
END_TEST

// ---- limits of ranks and pools -----------------------------------------------------------------

static void begin_with_room(int device_count, int ranks_max)
{
    struct core_config config = fixture_config();
    config.hosts[0].device_count = device_count;
    config.ranks_max = ranks_max;
    fixture_again(&config);
}

START_TEST(the_least_recently_used_pool_makes_room)
{
    begin_with_room(8, 7);
    struct ranks four = pool_up(4), two = pool_up(2);
    run_finish(four, run_in(four));
    submit(3);
    expect_kill(two);
    expect_none(); // 4 + 3 fit
    rank_dies(two, 0);
    expect_none();
    rank_dies(two, 1);
    expect_start(3, 0);
}
END_TEST

START_TEST(only_as_many_pools_as_needed_are_stopped)
{
    begin_with_room(8, 7);
    struct ranks one = pool_up(1), two = pool_up(2), three = pool_up(3);
    submit(4);
    expect_kill(one);
    expect_kill(two);
    ranks_reap(two);
    expect_none();
    ranks_reap(one);
    expect_start(4, 0);
    submit(3);
    expect_none(); // the pool of three stayed up; its job waits for devices
    (void)three;
}
END_TEST

START_TEST(a_pool_larger_than_the_limit_may_run_alone)
{
    begin_with_room(8, 3);
    struct ranks two = pool_up(2);
    struct action run = run_in(two);
    int large = submit(6);
    int small = submit(2);
    run_finish(two, run);
    expect_kill(two);
    ranks_reap(two);
    struct ranks six = start_ready(6, 0);
    run = expect_run(six, large);
    expect_none(); // devices 6 and 7 are free, but the limit of ranks leaves no room
    run_finish(six, run);
    expect_kill(six);
    ranks_reap(six);
    expect_run(start_ready(2, 0), small);
}
END_TEST

START_TEST(room_for_an_earlier_job_is_not_taken)
{
    begin_with_room(8, 5);
    struct ranks two = pool_up(2);
    struct action run = run_in(two);
    int large = submit(5); // waits for the devices 0 and 1
    int small = submit(1); // there are room and a device for it
    struct ranks one = start_ready(1, 5);
    struct action small_run = expect_run(one, small);
    run_finish(two, run);
    expect_kill(two); // room for the large one
    ranks_reap(two);
    int later = submit(1);
    expect_none(); // a device is free, but the room is reserved
    run_finish(one, small_run);
    expect_kill(one);
    ranks_reap(one);
    struct ranks five = start_ready(5, 0);
    expect_run(five, large);
    expect_none();
    (void)later;
}
END_TEST

START_TEST(a_pool_reserved_by_an_earlier_job_does_not_make_room)
{
    begin_with_room(6, 7);
    struct ranks four = pool_up(4), two = pool_up(2), one = pool_up(1);
    struct action run = run_in(two);
    int waits = submit(4); // for the devices of `two`; `four` is idle, and was used longest ago
    int later = submit(1); // device 0 is taken, 4 is free
    expect_kill(one);
    ranks_reap(one);
    expect_run(start_ready(1, 4), later);
    run_finish(two, run);
    expect_run(four, waits);
}
END_TEST

// ---- draining and status -----------------------------------------------------------------------

START_TEST(draining_stops_idle_pools_and_serves_queued_jobs)
{
    struct ranks four = pool_up(4), two = pool_up(2), one = pool_up(1);
    struct action run = run_in(four);
    int waiting = submit(2);
    core_drain(f.core, f.now_ns);
    expect_kill(one); // no job waits for it
    submit_refused(4, STATUS_UNAVAILABLE, "draining");
    run_finish(four, run);
    run = expect_run(two, waiting);
    expect_kill(four);
    ranks_reap(one);
    ranks_reap(four);
    run_finish(two, run);
    expect_kill(two);
    rank_dies(two, 0);
    expect_none();
    rank_dies(two, 1);
    expect(ACTION_EXIT);
    pass(S);
    submit_refused(1, STATUS_UNAVAILABLE, "draining");
}
END_TEST

START_TEST(an_empty_daemon_drains_at_once)
{
    core_drain(f.core, f.now_ns);
    expect(ACTION_EXIT);
    core_drain(f.core, f.now_ns);
    expect_none();
}
END_TEST

START_TEST(an_idle_pool_is_stopped_after_its_time)
{
    struct core_config config = fixture_config();
    config.idle_timeout_ns = 10 * S;
    fixture_again(&config);
    struct ranks two = pool_up(2);
    pass(9 * S);
    run_finish(two, run_in(two));
    pass(10 * S - 1);
    expect_none();
    pass(1);
    expect_kill(two);
    ranks_reap(two);
    // A pool that a job waits for is not stopped.
    two = pool_up(2);
    struct ranks four = pool_up(4);
    struct action run = run_in(four);
    int slot = submit(2);
    pass(15 * S);
    expect_none();
    run_finish(four, run);
    expect_run(two, slot);
}
END_TEST

START_TEST(a_short_idle_timeout_does_not_keep_the_daemon_awake)
{
    struct core_config config = fixture_config();
    config.idle_timeout_ns = 1000;
    fixture_again(&config);
    int slot = submit(2);
    struct ranks two = start_ready(2, 0);
    struct action run = expect_run(two, slot);
    submit(4);
    submit(2);
    run_finish(two, run);
    expect_start(4, 0);
    pass(1000);
    expect_none(); // a job waits for the pool of two
    ck_assert_uint_ge(core_next_time(f.core), f.now_ns + S);
}
END_TEST

START_TEST(status_has_pools_and_counts)
{
    struct wire_status status = {.uptime_ns = 1, .passed = 2, .failed = 3};
    struct wire_pool pools[POOLS_MAX];
    struct ranks four = pool_up(4), two = pool_up(2);
    struct action run = run_in(four);
    submit(2);
    submit_refused(9, STATUS_FAILED_PRECONDITION, "9");
    rank_dies(two, 1);
    expect_kill(two);
    core_status(f.core, &status, pools);
    ck_assert_int_eq(status.queued, 1);
    ck_assert_int_eq(status.running, 1);
    ck_assert_uint_eq(status.admitted, 4);
    ck_assert_uint_eq(status.refused, 1);
    ck_assert(!status.draining);
    ck_assert(status.uptime_ns == 1 && status.passed == 2 && status.failed == 3);
    ck_assert_int_eq(status.pool_count, 2);
    ck_assert_ptr_eq(status.pools, pools);
    ck_assert_int_eq(pools[0].world_size, 2);
    ck_assert_int_eq(pools[0].state, POOL_STOPPING);
    ck_assert_str_eq(pools[0].last_failure, "rank 1 exited with 1");
    ck_assert_uint_eq(pools[0].deaths, 1);
    ck_assert_uint_eq(pools[0].jobs, 1);
    ck_assert_int_eq(pools[1].state, POOL_RUNNING);
    ck_assert_uint_eq(pools[1].generation, 1);
    ck_assert_str_eq(pools[1].last_failure, "");

    rank_dies(two, 0); // cold; nothing starts while the pool of four runs
    rank_fails(four, 3);
    expect_answer(run.slot, CAUSE_RANK_FAILED, 3);
    expect_kill(four);
    core_drain(f.core, f.now_ns);
    core_status(f.core, &status, pools);
    ck_assert(status.draining);
    ck_assert_int_eq(pools[0].state, POOL_COLD);
    ck_assert_str_eq(pools[1].last_failure, "rank 3 failed");
}
END_TEST

START_TEST(status_omits_pools_that_pause_rather_than_pools_with_ranks)
{
    struct core_config config = fixture_config();
    config.hosts[0].device_count = DEVICES_MAX;
    config.ranks_max = RANKS_MAX;
    config.queue_max = JOBS_MAX;
    fixture_again(&config);
    struct ranks large = pool_up(WORLD_SIZE_MAX);
    struct wire_status status = {0};
    struct wire_pool pools[POOLS_MAX];
    submit(1);
    for (int i = 0; i <= POOLS_MAX; i++) { // each pool of one rank once, the first one twice
        struct ranks one = expect_start(1, i % POOLS_MAX);
        core_start_failed(f.core, f.now_ns, one.pool, one.generation);
    }
    core_status(f.core, &status, pools);
    ck_assert_int_eq(status.pool_count, POOLS_MAX);
    ck_assert_int_eq(pools[0].state, POOL_BACKOFF);

    for (int i = 1; i < POOLS_MAX; i++) {
        start_ready(1, i);
        expect(ACTION_RUN);
        if (i < POOLS_MAX - 1)
            submit(1);
    }
    core_status(f.core, &status, pools);
    ck_assert_int_eq(status.pool_count, POOLS_MAX);
    for (int i = 0; i < POOLS_MAX - 1; i++)
        ck_assert_int_eq(pools[i].state, POOL_RUNNING);
    ck_assert_int_eq(pools[POOLS_MAX - 1].state, POOL_IDLE);
    ck_assert_int_eq(pools[POOLS_MAX - 1].world_size, large.world_size);
}
END_TEST

START_TEST(destroy_accepts_null)
{
    core_destroy(NULL);
}
END_TEST

// ------------------------------------------------------------------------------------------------

int main(void)
{
    Suite *suite = suite_create("core schedule");
    TCase *c = fixture_case(suite, begin, "devices");
    tcase_add_test(c, pools_of_one_world_size_run_side_by_side);
    tcase_add_test(c, an_idle_pool_is_used_before_another_is_started);
    tcase_add_test(c, jobs_that_share_a_device_take_turns);
    tcase_add_test(c, devices_are_free_when_killed_ranks_are_reaped);
    tcase_add_test(c, a_pool_may_be_larger_than_the_devices_only_if_allowed);
    tcase_add_test(c, the_largest_machine);
    c = fixture_case(suite, begin, "fairness");
    tcase_add_test(c, jobs_run_in_order_of_admission);
    tcase_add_test(c, a_stream_of_small_jobs_does_not_starve_a_large_one);
    tcase_add_test(c, devices_without_reservation_are_used_by_later_jobs);
    tcase_add_test(c, devices_are_not_reserved_for_a_pool_in_backoff);
    tcase_add_test(c, no_more_pools_are_started_than_jobs_wait);
    c = fixture_case(suite, begin, "room");
    tcase_add_test(c, the_least_recently_used_pool_makes_room);
    tcase_add_test(c, only_as_many_pools_as_needed_are_stopped);
    tcase_add_test(c, a_pool_larger_than_the_limit_may_run_alone);
    tcase_add_test(c, room_for_an_earlier_job_is_not_taken);
    tcase_add_test(c, a_pool_reserved_by_an_earlier_job_does_not_make_room);
    c = fixture_case(suite, begin, "end and view");
    tcase_add_test(c, draining_stops_idle_pools_and_serves_queued_jobs);
    tcase_add_test(c, an_empty_daemon_drains_at_once);
    tcase_add_test(c, an_idle_pool_is_stopped_after_its_time);
    tcase_add_test(c, a_short_idle_timeout_does_not_keep_the_daemon_awake);
    tcase_add_test(c, status_has_pools_and_counts);
    tcase_add_test(c, status_omits_pools_that_pause_rather_than_pools_with_ranks);
    tcase_add_test(c, destroy_accepts_null);
    return runner_run(suite);
}
