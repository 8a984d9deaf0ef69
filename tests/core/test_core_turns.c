// SPDX-License-Identifier: Apache-2.0
// The pool core: turns of users by used device time.
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static void begin(void)
{
    struct core_config config = fixture_config();
    fixture_begin(&config);
}

static int submit_as(uint32_t user, int world_size, uint64_t timeout_ns)
{
    struct core_request request = request_make(world_size);
    int slot = -1;
    request.user = user;
    request.timeout_ns = timeout_ns;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    return slot;
}

static void begin_with_queue(int queue_max)
{
    struct core_config config = fixture_config();
    config.queue_max = queue_max;
    fixture_again(&config);
}

// The run ends after run_ns. The next run must be of this slot.
static struct action run_then(struct ranks ranks, struct action run, uint64_t run_ns, int slot)
{
    pass(run_ns);
    run_finish(ranks, run);
    return expect_run(ranks, slot);
}

START_TEST(a_long_queue_does_not_make_other_users_expire)
{
    enum { MANY = 512 };
    begin_with_queue(MANY + 2);
    struct ranks ranks = pool_up(4);
    int slots[MANY];
    slots[0] = submit_as(1, 4, 3600 * S);
    struct action run = expect_run(ranks, slots[0]);
    for (int i = 1; i < MANY; i++)
        slots[i] = submit_as(1, 4, 3600 * S);
    int small = submit_as(2, 4, 25 * S);
    run = run_then(ranks, run, S, small);
    // The two users take turns, even if user 2 asks again and again.
    run = run_then(ranks, run, 10 * MS, slots[1]);
    small = submit_as(2, 4, 25 * S);
    run = run_then(ranks, run, S, small);
    run_finish(ranks, run);
    expect_run(ranks, slots[2]);
}
END_TEST

// Ten short jobs of one user run before the second long job of another user.
START_TEST(turns_are_weighed_by_device_time)
{
    begin_with_queue(32);
    struct ranks ranks = pool_up(4);
    int longs[3], shorts[10];
    longs[0] = submit_as(1, 4, 60 * S);
    struct action run = expect_run(ranks, longs[0]);
    for (int i = 1; i < 3; i++)
        longs[i] = submit_as(1, 4, 60 * S);
    for (int i = 0; i < 10; i++)
        shorts[i] = submit_as(2, 4, 60 * S);
    for (int i = 0; i < 10; i++)
        run = run_then(ranks, run, i == 0 ? S : 100 * MS, shorts[i]);
    run = run_then(ranks, run, 90 * MS, longs[1]);
    run_then(ranks, run, S, longs[2]);
}
END_TEST

// Two devices for a second count more than one device for a second.
START_TEST(device_time_counts_devices)
{
    begin_with_queue(32);
    struct ranks four = pool_up(4), two = pool_up(2);
    struct action run = expect_run(two, submit_as(1, 2, 60 * S));
    int small = submit_as(2, 1, 60 * S);
    struct ranks one = start_ready(1, 2);
    struct action other = expect_run(one, small);
    submit_as(3, 1, 60 * S);
    struct ranks last = start_ready(1, 3);
    struct action third = expect(ACTION_RUN);
    int later = submit_as(1, 4, 60 * S);
    int first = submit_as(2, 4, 60 * S);
    pass(S);
    run_finish(two, run);
    run_finish(one, other);
    run_finish(last, third);
    run = expect_run(four, first);
    run_finish(four, run);
    expect_run(four, later);
}
END_TEST

// A user does not save up device time while it has no jobs.
START_TEST(a_pause_gives_no_credit)
{
    begin_with_queue(32);
    struct ranks ranks = pool_up(4);
    int first[8] = {submit_as(1, 4, 600 * S)}, second[4];
    struct action run = expect_run(ranks, first[0]);
    for (int i = 1; i < 8; i++)
        first[i] = submit_as(1, 4, 600 * S);
    for (int i = 1; i < 5; i++)
        run = run_then(ranks, run, 10 * S, first[i]);
    for (int i = 0; i < 4; i++)
        second[i] = submit_as(2, 4, 600 * S);
    run = run_then(ranks, run, 10 * S, second[0]);
    run = run_then(ranks, run, 10 * S, first[5]);
    run = run_then(ranks, run, 10 * S, second[1]);
    run_then(ranks, run, 10 * S, first[6]);
}
END_TEST

// A first job waits although devices are idle. Users who have used less do not overtake it.
START_TEST(a_job_that_waits_beside_idle_devices_stays_first)
{
    begin_with_queue(32);
    struct ranks four = pool_up(4), one = pool_up(1);
    struct action run = expect_run(four, submit_as(1, 4, 60 * S));
    pass(10 * S);
    run_finish(four, run);
    run = expect_run(one, submit_as(2, 1, 60 * S));
    int wide = submit_as(1, 4, 60 * S);
    pass(S);
    int narrow = submit_as(3, 1, 60 * S);
    expect_none();
    run_finish(one, run);
    run = expect_run(four, wide);
    // The next job of the same user is not first.
    wide = submit_as(1, 4, 60 * S);
    pass(S);
    run_finish(four, run);
    run = expect_run(one, narrow);
    run_finish(one, run);
    expect_run(four, wide);
}
END_TEST

// The devices of the first job are out of use. The jobs after it must not starve.
START_TEST(a_job_without_a_possible_pool_does_not_stay_first)
{
    begin_with_queue(32);
    struct ranks four = pool_up(4), ones[3];
    struct action run = expect_run(four, submit_as(1, 4, 600 * S)), runs[3];
    pass(10 * S);
    submit_as(9, 4, 600 * S);
    pass(S);
    core_set_devices_out(f.core, f.now_ns, 0, 1 << 3);
    run_finish(four, run);
    expect_kill(four);
    for (int rank = 0; rank < 4; rank++)
        rank_dies(four, rank);
    for (int i = 0; i < 3; i++) {
        int slot = submit_as(2, 1, 600 * S);
        ones[i] = start_ready(1, i);
        runs[i] = expect_run(ones[i], slot);
    }
    int wide = submit_as(1, 2, 600 * S); // on devices 0 and 1
    run_finish(ones[2], runs[2]);
    pass(S);
    run = expect_run(ones[2], submit_as(3, 1, 600 * S));
    int narrow = submit_as(3, 1, 600 * S);
    run_finish(ones[0], runs[0]);
    expect_none();
    run_finish(ones[1], runs[1]);
    expect_run(start_ready(2, 0), wide);
    run_finish(ones[2], run);
    expect_run(ones[2], narrow);
}
END_TEST

// own_before counts only jobs of the same user. The advice to ask for less at once depends on it.
START_TEST(an_expired_job_counts_its_users_earlier_jobs)
{
    begin_with_queue(32);
    struct ranks ranks = pool_up(4);
    submit_as(1, 4, 600 * S);
    expect(ACTION_RUN);
    submit_as(1, 4, 600 * S);
    int own = submit_as(1, 4, S);
    int other = submit_as(2, 4, 2 * S);
    pass(S);
    ck_assert_int_eq(expect_answer(own, CAUSE_DEADLINE_QUEUED, -1).own_before, 2);
    pass(S);
    struct action answer = expect_answer(other, CAUSE_DEADLINE_QUEUED, -1);
    ck_assert_int_eq(answer.own_before, 0);
    ck_assert_ptr_null(answer.limit);
    (void)ranks;
}
END_TEST

// ---- limits ------------------------------------------------------------------------------------

static void begin_with_limits(struct user_limits limits)
{
    struct core_config config = fixture_config();
    config.queue_max = 32;
    config.user = limits;
    fixture_again(&config);
}

START_TEST(running_jobs_of_a_user_are_limited)
{
    begin_with_limits((struct user_limits){.running_max = 1});
    int first = submit_as(1, 1, 60 * S);
    struct ranks one = start_ready(1, 0);
    struct action run = expect_run(one, first);
    int second = submit_as(1, 1, 60 * S);
    expect_none(); // there are devices, but not for this user
    int other = submit_as(2, 1, 60 * S);
    struct ranks two = start_ready(1, 1);
    expect_run(two, other);
    run_finish(one, run);
    run = expect_run(one, second);
    // While one of its jobs runs, no devices are reserved for its other jobs.
    submit_as(1, 4, 60 * S);
    submit_as(1, 3, 60 * S);
    other = submit_as(3, 1, 60 * S);
    expect_run(start_ready(1, 2), other);
    // The limit may be lifted while jobs wait.
    core_limit(f.core, f.now_ns, &(struct core_limits){.user_queue_max = 0});
    expect_none();
    submit_as(1, 1, 60 * S);
    run_finish(one, run);
}
END_TEST

// The answer to a job that expires in the queue names the limit that kept it there.
START_TEST(an_expired_job_names_the_limit_of_its_user)
{
    begin_with_limits((struct user_limits){.running_max = 1});
    int first = submit_as(1, 1, 60 * S);
    expect_run(start_ready(1, 0), first);
    int second = submit_as(1, 1, S);
    pass(S);
    ck_assert_str_eq(expect_answer(second, CAUSE_DEADLINE_QUEUED, -1).limit, "user-running-max");

    begin_with_limits((struct user_limits){.time_ns = 4 * S, .window_ns = 8 * S});
    struct ranks four = pool_up(4);
    struct action run = expect_run(four, submit_as(1, 4, 60 * S));
    second = submit_as(1, 4, 6 * S);
    int other = submit_as(2, 4, 60 * S);
    pass(2 * S);
    run_finish(four, run);
    expect_run(four, other);
    pass(4 * S);
    ck_assert_str_eq(expect_answer(second, CAUSE_DEADLINE_QUEUED, -1).limit, "user-device-time");
}
END_TEST

// A job in a pause after failed starts does not count.
START_TEST(jobs_that_cannot_run_do_not_use_the_limit)
{
    begin_with_limits((struct user_limits){.running_max = 1});
    submit_as(1, 4, 60 * S);
    fail_starts(expect_start(4, 0), 2);
    int small = submit_as(1, 1, 60 * S);
    expect_run(start_ready(1, 0), small);
}
END_TEST

START_TEST(device_time_is_limited)
{
    begin_with_limits((struct user_limits){.time_ns = 4 * S, .window_ns = 8 * S});
    struct ranks four = pool_up(4);
    struct action run = expect_run(four, submit_as(1, 4, 60 * S));
    pass(2 * S);
    run_finish(four, run);
    // The user has used 8 s of 4 s. Half of it must lapse.
    struct core_request request = request_make(4);
    int slot;
    request.user = 1;
    request.timeout_ns = 7 * S;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(f.error.text,
                     "cases of this user have used the device time of 4.00 s that they may in "
                     "8.00 s (user-device-time); the next can run in 8.00 s, which its time limit "
                     "of 7.00 s does not allow; accepted is 8.1s or more");
    slot = submit_as(1, 4, 60 * S);
    expect_none();
    int other = submit_as(2, 4, 60 * S);
    run = expect_run(four, other);
    run_finish(four, run);
    ck_assert_uint_eq(core_next_time(f.core), f.now_ns + 8 * S + 1);
    pass(8 * S);
    expect_none();
    pass(1);
    run = expect_run(four, slot);
    // The used time of a running job counts at once, and does not end the job.
    pass(30 * S);
    expect_none();
    run_finish(four, run);
}
END_TEST

START_TEST(device_time_lapses_evenly)
{
    struct users users;
    ck_assert(users_init(&users, 1, S));
    users.limits = (struct user_limits){.time_ns = 2 * S, .window_ns = 24 * S};
    struct account *account = users_queue(&users, 7);
    users_run(&users, account);
    users_charge(&users, account, 100 * S, S);
    ck_assert_uint_eq(account->lapsed_ns, 112 * S); // half the limit lapses in half the window
    ck_assert(users_may_run(&users, account, 100 * S));
    users_charge(&users, account, 106 * S, 2 * S);
    ck_assert_uint_eq(users_wait_ns(&users, account, 106 * S), 6 * S + 1);
    // It is remembered when the user has no more jobs. The largest time does not wrap around.
    users_leave(&users, account, 106 * S, true);
    ck_assert_uint_eq(users_wait_ns(&users, users_find(&users, 7), 106 * S), 6 * S + 1);
    ck_assert_uint_eq(users_wait_ns(&users, NULL, 106 * S), 0);
    users_charge(&users, users_find(&users, 7), 106 * S, UINT64_MAX);
    ck_assert(!users_may_run(&users, users_find(&users, 7), UINT64_MAX - 24 * S));
    users_fini(&users);
}
END_TEST

START_TEST(the_longest_time_limit_is_a_setting)
{
    struct core_config config = fixture_config();
    config.timeout_max_ns = 3600 * S;
    fixture_again(&config);
    struct core_request request = request_make(4);
    int slot;
    request.timeout_ns = 3600 * S + 1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(f.error.text, "timeout: 1 h 00 m is longer than 1 h 00 m, the longest that "
                                   "this daemon grants (timeout-max)");
    request.timeout_ns = request.cost_ns = 3600 * S;
    request.run_timeout_ns = S;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_DEADLINE_EXCEEDED);
    request.cost_ns = S;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    expect_start(4, 0);
    // The advice never exceeds the longest time limit. A reload changes that limit.
    core_limit(f.core, f.now_ns, &(struct core_limits){.timeout_max_ns = 60 * S});
    request = request_make(4);
    request.cost_ns = 61 * S;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_DEADLINE_EXCEEDED);
    ck_assert_msg(strstr(f.error.text, "no time limit that may be asked for"), "%s", f.error.text);
}
END_TEST

// ---- memory ------------------------------------------------------------------------------------

static int submit_taking(int world_size, uint64_t memory)
{
    struct core_request request = request_make(world_size);
    int slot = -1;
    request.memory = memory;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    return slot;
}

static void begin_with_memory(uint64_t memory_max)
{
    struct core_config config = fixture_config();
    config.memory_max = memory_max;
    fixture_again(&config);
}

START_TEST(memory_of_running_jobs_is_limited_in_sum)
{
    begin_with_memory(10);
    int first = submit_taking(1, 6);
    struct ranks one = start_ready(1, 0);
    struct action run = expect_run(one, first);
    int large = submit_taking(1, 5);
    struct ranks two = start_ready(1, 1);
    expect_none();
    // There is memory for a small job, but the large job comes first.
    int small = submit_taking(1, 1);
    start_ready(1, 2);
    expect_none();
    run_finish(one, run);
    expect_run(one, large);
    expect_run(two, small);
}
END_TEST

// The job was admitted under a higher limit, before a reload.
START_TEST(a_job_larger_than_the_memory_runs_alone)
{
    begin_with_memory(10);
    int first = submit_taking(1, 6);
    struct ranks one = start_ready(1, 0);
    struct action run = expect_run(one, first);
    int large = submit_taking(1, 9);
    start_ready(1, 1);
    core_limit(f.core, f.now_ns, &(struct core_limits){.memory_max = 5});
    expect_none();
    run_finish(one, run);
    expect_run(one, large);
    core_limit(f.core, f.now_ns, &(struct core_limits){.memory_max = 0});
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core turns");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, begin, fixture_end);
    tcase_add_test(all, a_long_queue_does_not_make_other_users_expire);
    tcase_add_test(all, turns_are_weighed_by_device_time);
    tcase_add_test(all, device_time_counts_devices);
    tcase_add_test(all, a_pause_gives_no_credit);
    tcase_add_test(all, a_job_that_waits_beside_idle_devices_stays_first);
    tcase_add_test(all, a_job_without_a_possible_pool_does_not_stay_first);
    tcase_add_test(all, an_expired_job_counts_its_users_earlier_jobs);
    tcase_add_test(all, running_jobs_of_a_user_are_limited);
    tcase_add_test(all, jobs_that_cannot_run_do_not_use_the_limit);
    tcase_add_test(all, an_expired_job_names_the_limit_of_its_user);
    tcase_add_test(all, device_time_is_limited);
    tcase_add_test(all, device_time_lapses_evenly);
    tcase_add_test(all, the_longest_time_limit_is_a_setting);
    tcase_add_test(all, memory_of_running_jobs_is_limited_in_sum);
    tcase_add_test(all, a_job_larger_than_the_memory_runs_alone);
    suite_add_tcase(suite, all);
    return runner_run(suite);
}
