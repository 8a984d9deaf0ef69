// SPDX-License-Identifier: Apache-2.0
// The pool core: hot spares take over, and lost ones are replaced.
#include <signal.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static void begin(void)
{
    struct core_config config = fixture_config_with_spares();
    fixture_begin(&config);
}

// ---- taking over -------------------------------------------------------------------------------

START_TEST(the_older_works_and_the_younger_stands_by)
{
    struct pair pair = pair_up(2);
    for (int i = 0; i < 3; i++)
        run_finish(pair.leader, run_in(pair.leader));
    submit(2);
    expect(ACTION_RUN);
    submit(2); // on the other devices
    expect_leader(2);
}
END_TEST

START_TEST(a_spare_takes_over_at_once)
{
    struct pair pair = pair_up(4);
    struct action run = run_in(pair.leader);
    int next = submit(4);
    leader_dies(pair, run);
    run = expect_run(pair.spare, next); // three ranks of the leader are not reaped yet
    run_finish(pair.spare, run);
    run_finish(pair.spare, run_in(pair.spare));
    ranks_reap_but(pair.leader, 0);
    struct ranks fresh = expect_spare(4);
    ck_assert_uint_gt(fresh.generation, pair.spare.generation);
    ranks_ready(fresh);
    run_finish(pair.spare, run_in(pair.spare)); // it is the older pool
}
END_TEST

// Until all ranks of a killed pool are reaped, only its twin may use their devices.
START_TEST(only_the_twin_takes_over_the_devices)
{
    struct pair pair = pair_up(4);
    leader_dies(pair, run_in(pair.leader));
    struct action run = run_in(pair.spare);
    int other = submit(1);
    run_finish(pair.spare, run);
    expect_none(); // the ranks that are not reaped keep the devices
    rank_dies(pair.leader, 1);
    rank_dies(pair.leader, 2);
    expect_none();
    rank_dies(pair.leader, 3);
    struct ranks one = expect_leader(1);
    ranks_ready(one);
    expect_run(one, other);
    ranks_ready(expect_spare(1));
    expect_spare(4);
}
END_TEST

START_TEST(a_spare_that_took_over_may_be_lost)
{
    for (int first = 0; first < 2; first++) { // which pool is reaped first
        struct core_config config = fixture_config_with_spares();
        fixture_again(&config);
        struct pair pair = pair_up(4);
        leader_dies(pair, run_in(pair.leader));
        struct action run = run_in(pair.spare);
        int next = submit(1);
        leader_dies((struct pair){.leader = pair.spare}, run);
        ranks_reap_but(first == 0 ? pair.leader : pair.spare, 0);
        expect_none();
        ranks_reap_but(first == 0 ? pair.spare : pair.leader, 0);
        expect_run(start_ready(1, 0), next);
        expect_spare(1);
    }
}
END_TEST

START_TEST(ranks_of_a_replaced_pool_may_get_stuck)
{
    struct pair pair = pair_up(4);
    leader_dies(pair, run_in(pair.leader));
    struct action run = run_in(pair.spare);
    rank_dies(pair.leader, 1);
    rank_dies(pair.leader, 2);
    pass(5 * S);
    ck_assert_uint_eq(expect(ACTION_STUCK).devices, 0x8);
    run_finish(pair.spare, run);
    submit_refused(4, STATUS_UNAVAILABLE, "device 3");
    rank_dies(pair.leader, 3);
    expect_spare(4);
    run_in(pair.spare);
}
END_TEST

START_TEST(a_spare_takes_over_after_a_deadline)
{
    struct pair pair = pair_up(2);
    struct core_request request = request_make(2);
    request.timeout_ns = S;
    int slot, next = -1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    expect_run(pair.leader, slot);
    pass(S);
    expect_answer(slot, CAUSE_DEADLINE_RUNNING, -1);
    expect_kill(pair.leader);
    ranks_reap(pair.leader);
    expect_spare(2);
    next = submit(2);
    expect_run(pair.spare, next);
}
END_TEST

START_TEST(a_spare_that_starts_is_waited_for)
{
    struct pair pair = pair_starting(4);
    struct action run = run_in(pair.leader);
    int next = submit(4);
    leader_dies(pair, run);
    ranks_reap_but(pair.leader, 0);
    expect_none(); // the pool that died is not started meanwhile
    submit(1);
    expect_none(); // and its devices are kept
    ranks_ready(pair.spare);
    expect_run(pair.spare, next);
    expect_none(); // a pool for the other job comes before the spare
}
END_TEST

START_TEST(a_spare_that_starts_is_waited_for_rather_than_another_pool)
{
    struct pair pair = pair_starting(2);
    leader_dies(pair, run_in(pair.leader));
    rank_dies(pair.leader, 1);
    int next = submit(2);
    expect_none(); // no pool starts on devices 2 and 3
    ranks_ready(pair.spare);
    expect_run(pair.spare, next);
    expect_spare(2);
}
END_TEST

START_TEST(a_job_that_waits_for_a_spare_waits_for_a_start)
{
    struct pair pair = pair_starting(4);
    struct action run = run_in(pair.leader);
    struct core_request request = request_make(4);
    request.timeout_ns = S;
    int next;
    ck_assert_int_eq(submit_request(&request, &next), STATUS_OK);
    leader_dies(pair, run);
    ranks_reap_but(pair.leader, 0);
    pass(S);
    expect_answer(next, CAUSE_DEADLINE_STARTING, -1);
}
END_TEST

START_TEST(a_job_that_waits_for_the_leader_waits_in_the_queue)
{
    struct pair pair = pair_starting(4);
    struct action run = run_in(pair.leader);
    struct core_request request = request_make(4);
    request.timeout_ns = S;
    int next;
    ck_assert_int_eq(submit_request(&request, &next), STATUS_OK);
    pass(S);
    expect_answer(next, CAUSE_DEADLINE_QUEUED, -1);
    (void)run;
}
END_TEST

START_TEST(an_idle_leader_that_dies_is_replaced)
{
    struct pair pair = pair_up(2);
    rank_dies(pair.leader, 1);
    expect_kill(pair.leader);
    struct action run = run_in(pair.spare); // the idle leader leased no devices
    expect_none();                          // its ranks are not reaped yet
    rank_dies(pair.leader, 0);
    expect_spare(2);
    run_finish(pair.spare, run);
}
END_TEST

START_TEST(the_start_of_a_spare_leases_no_devices)
{
    struct pair pair = pair_starting(4);
    submit(1); // while the spare starts on all devices
    struct ranks one = expect_leader(1);
    ranks_ready(one);
    expect(ACTION_RUN);
    expect_none(); // the spare of `one` waits for the other start
    ranks_ready(pair.spare);
    expect_spare(1);
}
END_TEST

// Drivers start one process after the other: a spare would delay a pool that a job waits for.
START_TEST(spares_start_after_pools_for_jobs_and_one_at_a_time)
{
    struct pair pair = pair_starting(4);
    struct action run = run_in(pair.leader);
    ranks_ready(pair.spare);
    rank_dies(pair.spare, 0);
    expect_kill(pair.spare);
    ranks_reap_but(pair.spare, 0);
    int two = submit(2), three = submit(3);
    pass(S); // the spare of 4 is due
    expect_none();
    run_finish(pair.leader, run);
    struct ranks second = expect_leader(2);
    expect_none();
    ranks_ready(second);
    run = expect_run(second, two);
    expect_none(); // a pool of 3 is to start on the same devices
    run_finish(second, run);
    struct ranks third = expect_leader(3);
    ranks_ready(third);
    run = expect_run(third, three);
    struct ranks spare = expect_spare(3);
    expect_none();
    ranks_ready(spare);
    expect_spare(4);
    run_finish(third, run);
}
END_TEST

START_TEST(a_spare_starts_some_time_after_its_pool)
{
    struct core_config config = fixture_config_with_spares();
    config.spare_delay_ns = 2 * S;
    fixture_again(&config);
    struct ranks four = pool_up(4);
    pass(S);
    struct ranks two = pool_up(2); // without a delay the spare of 4 would start beside it
    pass(S);
    ranks_ready(expect_spare(4));
    expect_none();
    pass(S - 1);
    expect_none();
    pass(1);
    ranks_ready(expect_spare(2));
    rank_dies(four, 0);
    expect_kill(four);
    ranks_reap_but(four, 0);
    expect_none();
    pass(S);
    expect_spare(4); // the pool that took over has been ready for two seconds
    (void)two;
}
END_TEST

// Every job kills its pool before the delay is over. Nevertheless a spare is there for the third.
START_TEST(a_pool_that_is_lost_early_has_a_spare_without_delay)
{
    struct core_config config = fixture_config_with_spares();
    config.spare_delay_ns = 2 * S;
    fixture_again(&config);
    struct ranks first = pool_up(4);
    pass(S);
    leader_dies((struct pair){.leader = first}, run_in(first));
    ranks_reap_but(first, 0);
    expect_none();
    pass(S);
    int slot = submit(4);
    struct pair pair = {.leader = expect_leader(4)};
    ranks_ready(pair.leader);
    struct action run = expect_run(pair.leader, slot);
    pair.spare = expect_spare(4);
    ranks_ready(pair.spare);
    leader_dies(pair, run);
    run_in(pair.spare);
}
END_TEST

START_TEST(two_kills_are_poison_with_spares_too)
{
    struct pair pair = pair_up(2);
    struct core_request request = request_make(2);
    int slot;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    leader_dies(pair, expect_run(pair.leader, slot));
    rank_dies(pair.leader, 1);
    struct ranks fresh = expect_spare(2);
    request.id.bytes[15] = 1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    leader_dies((struct pair){pair.spare, fresh}, expect_run(pair.spare, slot));
    request.id.bytes[15] = 2;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_FAILED_PRECONDITION);
}
END_TEST

// ---- spares that fail --------------------------------------------------------------------------

START_TEST(a_spare_that_dies_unused_restarts_after_a_second)
{
    struct pair pair = pair_up(2);
    for (int i = 0; i < 7; i++) { // any number of times
        rank_dies(pair.spare, 0);
        expect_kill(pair.spare);
        rank_dies(pair.spare, 1);
        run_finish(pair.leader, run_in(pair.leader));
        pass(S - 1);
        expect_none();
        pass(1);
        pair.spare = expect_spare(2);
        ranks_ready(pair.spare);
    }
}
END_TEST

START_TEST(a_spare_that_has_worked_restarts_at_once)
{
    struct pair pair = pair_up(2);
    rank_dies(pair.leader, 0);
    expect_kill(pair.leader);
    rank_dies(pair.leader, 1);
    struct ranks fresh = expect_spare(2);
    ranks_ready(fresh);
    leader_dies((struct pair){pair.spare, fresh}, run_in(pair.spare));
    rank_dies(pair.spare, 1);
    expect_spare(2);
}
END_TEST

// Each of two pools on the same devices reports its own last failure.
START_TEST(each_pool_has_its_own_last_failure)
{
    struct wire_pool pools[POOLS_MAX];
    struct wire_status status = {0};
    struct pair pair = pair_up(2);
    core_rank_exited(f.core, f.now_ns, pair.spare.pool, pair.spare.generation, 1,
                     &(struct rank_end){RANK_SIGNALLED, SIGSEGV});
    expect_kill(pair.spare);
    rank_dies(pair.spare, 0);
    core_rank_exited(f.core, f.now_ns, pair.leader.pool, pair.leader.generation, 1,
                     &(struct rank_end){RANK_EXITED, 3});
    expect_kill(pair.leader);
    core_status(f.core, &status, pools);
    ck_assert_int_eq(status.pool_count, 2);
    int leader = pools[0].state == POOL_STOPPING ? 0 : 1;
    ck_assert_str_eq(pools[leader].last_failure, "rank 1 exited with 3");
    ck_assert_str_eq(pools[!leader].last_failure, "rank 1 was killed by signal 11 (SIGSEGV)");
}
END_TEST

START_TEST(pauses_of_failing_spares_grow)
{
    struct pair pair = pair_starting(2);
    for (int i = 1; i < 5; i++) {
        core_start_failed(f.core, f.now_ns, pair.spare.pool, pair.spare.generation);
        pass(S - 1);
        expect_none();
        pass(1);
        pair.spare = expect_spare(2);
    }
    uint64_t begin_ns = f.now_ns - 4 * S;
    for (uint64_t pause_ns = 0; pause_ns < 10 * S;) {
        core_start_failed(f.core, f.now_ns, pair.spare.pool, pair.spare.generation);
        pause_ns = (f.now_ns - begin_ns) / 8 > S ? (f.now_ns - begin_ns) / 8 : S;
        pass(pause_ns - 1);
        expect_none();
        pass(1);
        pair.spare = expect_spare(2);
    }
    core_start_failed(f.core, f.now_ns, pair.spare.pool, pair.spare.generation);
    run_finish(pair.leader, run_in(pair.leader)); // no job is refused because of the spare
    struct action run = run_in(pair.leader);
    leader_dies(pair, run);
    rank_dies(pair.leader, 1);
    int slot = submit(2);
    struct ranks leader = expect_leader(2); // and no job waits because of it
    ranks_ready(leader);
    run_finish(leader, expect_run(leader, slot));
    pass(12 * S);
    expect_spare(2);
}
END_TEST

START_TEST(a_pool_with_a_spare_is_down_after_five_starts)
{
    int slot = submit(4);
    struct ranks ranks = expect_leader(4);
    static const uint64_t pauses_ns[] = {0, 0, 250 * MS, 250 * MS, 250 * MS};
    for (int i = 1; i < 5; i++) {
        core_start_failed(f.core, f.now_ns, ranks.pool, ranks.generation);
        if (pauses_ns[i] > 0) {
            pass(pauses_ns[i] - 1);
            expect_none(); // its twin is not started in its place
        }
        pass(pauses_ns[i] > 0);
        ranks = expect_leader(4);
    }
    core_start_failed(f.core, f.now_ns, ranks.pool, ranks.generation);
    expect_answer(slot, CAUSE_START_FAILED, -1);
    submit_refused(4, STATUS_UNAVAILABLE, "DOWN");
    submit_refused(4, STATUS_UNAVAILABLE, "in 1 s");
    pass(250 * MS);
    submit(4);
    expect_leader(4);
}
END_TEST

static void begin_without(void)
{
    struct core_config config = fixture_config();
    fixture_begin(&config);
}

START_TEST(without_the_setting_there_are_no_spares)
{
    struct ranks ranks = pool_up(2);
    struct action run = run_in(ranks);
    int next = submit(2);
    struct action start = expect(ACTION_START);
    ck_assert(!start.spare && start.instance == 1);
    rank_dies(ranks, 0);
    expect_answer(run.slot, CAUSE_RANK_EXITED, 0);
    expect_kill(ranks);
    rank_dies(ranks, 1);
    expect_none();
    (void)next;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core spares");
    TCase *on = tcase_create("spares"), *off = tcase_create("none");
    tcase_add_checked_fixture(on, begin, fixture_end);
    tcase_add_test(on, the_older_works_and_the_younger_stands_by);
    tcase_add_test(on, a_spare_takes_over_at_once);
    tcase_add_test(on, only_the_twin_takes_over_the_devices);
    tcase_add_test(on, a_spare_that_took_over_may_be_lost);
    tcase_add_test(on, ranks_of_a_replaced_pool_may_get_stuck);
    tcase_add_test(on, a_spare_takes_over_after_a_deadline);
    tcase_add_test(on, a_spare_that_starts_is_waited_for);
    tcase_add_test(on, a_spare_that_starts_is_waited_for_rather_than_another_pool);
    tcase_add_test(on, a_job_that_waits_for_a_spare_waits_for_a_start);
    tcase_add_test(on, a_job_that_waits_for_the_leader_waits_in_the_queue);
    tcase_add_test(on, an_idle_leader_that_dies_is_replaced);
    tcase_add_test(on, the_start_of_a_spare_leases_no_devices);
    tcase_add_test(on, spares_start_after_pools_for_jobs_and_one_at_a_time);
    tcase_add_test(on, two_kills_are_poison_with_spares_too);
    tcase_add_test(on, a_spare_that_dies_unused_restarts_after_a_second);
    tcase_add_test(on, a_spare_that_has_worked_restarts_at_once);
    tcase_add_test(on, each_pool_has_its_own_last_failure);
    tcase_add_test(on, pauses_of_failing_spares_grow);
    tcase_add_test(on, a_pool_with_a_spare_is_down_after_five_starts);
    suite_add_tcase(suite, on);
    tcase_add_checked_fixture(off, begin_without, fixture_end);
    tcase_add_test(off, without_the_setting_there_are_no_spares);
    tcase_add_test(off, a_spare_starts_some_time_after_its_pool);
    tcase_add_test(off, a_pool_that_is_lost_early_has_a_spare_without_delay);
    suite_add_tcase(suite, off);
    return runner_run(suite);
}
