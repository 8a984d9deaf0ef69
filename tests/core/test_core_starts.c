// SPDX-License-Identifier: Apache-2.0
// The pool core: failing starts, pauses, patience, other pools.
#include <signal.h>
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static void begin(void)
{
    struct core_config config = fixture_config();
    fixture_begin(&config);
}

START_TEST(five_failed_starts_and_the_pool_is_down)
{
    int first = submit(4);
    struct ranks ranks = expect_start(4, 0);
    int second = submit(4);
    fail_starts(ranks, 5);
    struct action answer = expect_answer(first, CAUSE_START_FAILED, -1);
    ck_assert_int_eq(answer.status, STATUS_UNAVAILABLE);
    expect_answer(second, CAUSE_START_FAILED, -1);
    submit_refused(4, STATUS_UNAVAILABLE, "DOWN");
    pool_up(2); // other pools start
    pass(250 * MS - 1);
    submit_refused(4, STATUS_UNAVAILABLE, "in 1 s");
    submit_refused(4, STATUS_UNAVAILABLE, "could not be started");
    pass(1);
    expect_none(); // the pool starts only for a job
    int third = submit(4);
    fail_starts(expect_start(4, 0), 1);
    expect_answer(third, CAUSE_START_FAILED, -1);
    submit_refused(4, STATUS_UNAVAILABLE, "DOWN");
}
END_TEST

// A start that ends by a kill from outside counts as half a failed start.
START_TEST(starts_that_are_killed_from_outside_count_half)
{
    int slot = submit(4);
    for (int i = 0; i < 10; i++) {
        struct ranks ranks = expect_start(4, 0);
        expect_none();
        core_rank_exited(f.core, f.now_ns, ranks.pool, ranks.generation, 0,
                         &(struct rank_end){RANK_SIGNALLED, SIGKILL});
        expect_kill(ranks);
        ranks_reap_but(ranks, 0);
        if (i >= 2 && i < 9)
            pass(250 * MS);
    }
    expect_answer(slot, CAUSE_START_FAILED, 0);
    submit_refused(4, STATUS_UNAVAILABLE, "DOWN");
}
END_TEST

static int submit_patient(int world_size, uint64_t patience_ns)
{
    struct core_request request = request_make(world_size);
    request.timeout_ns = 3600 * S;
    request.patience_ns = patience_ns;
    int slot = -1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    return slot;
}

// Passes the pause that follows a failed start, and returns its length.
static uint64_t pause_measure(void)
{
    uint64_t failed_ns = f.now_ns;
    expect_none();
    pass(core_next_time(f.core) - f.now_ns);
    return f.now_ns - failed_ns;
}

START_TEST(pauses_grow_with_the_time_of_failures)
{
    submit_patient(4, UINT64_MAX);
    struct ranks ranks = expect_start(4, 0);
    uint64_t begin_ns = f.now_ns;
    fail_starts(ranks, 5);
    while (f.now_ns - begin_ns < 600 * S) {
        uint64_t failing_ns = f.now_ns - begin_ns, pause_ns = pause_measure();
        uint64_t part_ns = failing_ns / 8 < 250 * MS ? 250 * MS : failing_ns / 8;
        ck_assert_uint_eq(pause_ns, part_ns < 30 * S ? part_ns : 30 * S);
        fail_starts(expect_start(4, 0), 1);
    }
    pause_measure();
    ranks_ready(expect_start(4, 0)); // the patient job runs
    expect(ACTION_RUN);
}
END_TEST

START_TEST(a_pool_that_is_down_costs_patience)
{
    int none = submit_patient(4, 0);
    struct ranks ranks = expect_start(4, 0);
    int ten = submit_patient(4, 10 * S), forever = submit_patient(4, UINT64_MAX);
    fail_starts(ranks, 5);
    uint64_t down_ns = f.now_ns;
    expect_answer(none, CAUSE_START_FAILED, -1);
    while (f.now_ns - down_ns < 10 * S) {
        pause_measure();
        fail_starts(expect_start(4, 0), 1);
    }
    expect_answer(ten, CAUSE_START_FAILED, -1);
    struct core_request late = request_make(4); // DOWN for longer than its patience
    late.patience_ns = 3 * S;
    int slot;
    ck_assert_int_eq(submit_request(&late, &slot), STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(f.error.text, "DOWN"));
    core_drain(f.core, f.now_ns); // patience does not delay a drain
    expect_answer(forever, CAUSE_START_FAILED, -1);
    expect(ACTION_EXIT);
}
END_TEST

START_TEST(a_success_resets_failed_starts)
{
    submit(4);
    fail_starts(expect_start(4, 0), 4);
    pass(250 * MS);
    struct ranks ranks = expect_start(4, 0);
    ranks_ready(ranks);
    struct action run = expect(ACTION_RUN);
    rank_dies(ranks, 0);
    expect_answer(run.slot, CAUSE_RANK_EXITED, 0);
    expect_kill(ranks);
    int slot = submit(4);
    ranks_reap_but(ranks, 0);
    fail_starts(expect_start(4, 0), 5); // counted from zero; the death does not count
    expect_answer(slot, CAUSE_START_FAILED, -1);
}
END_TEST

START_TEST(the_first_failed_rank_fails_the_start)
{
    for (int kind = 0; kind < 5; kind++) {
        struct core_request request = request_make(2);
        int slot;
        ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
        struct ranks ranks = expect_start(2, 0);
        rank_ready(ranks, 0);
        if (kind == 0)
            rank_dies(ranks, 1);
        else if (kind == 1)
            rank_fails(ranks, 1);
        else if (kind == 2)
            rank_loses(ranks, 0, 1);
        else if (kind == 3)
            rank_ready(ranks, 0);
        else
            rank_reports(ranks, 1, 1);
        expect_kill(ranks);
        ranks = expect_start(2, 1); // another pool starts meanwhile
        ranks_ready(ranks);
        ranks_report(ranks, expect_run(ranks, slot).job);
        expect_answer(slot, CAUSE_NONE, -1);
        fixture_end();
        begin();
    }
}
END_TEST

START_TEST(ranks_that_are_not_ready_in_time_are_killed)
{
    int slot = submit(4);
    struct ranks ranks = expect_start(4, 0);
    rank_ready(ranks, 0);
    pass(10 * S - 1);
    expect_none();
    pass(1);
    expect_kill(ranks);
    ranks_reap(ranks);
    ranks = expect_start(4, 0);
    ranks_ready(ranks);
    expect_run(ranks, slot);
}
END_TEST

START_TEST(a_start_may_fail_after_the_kill)
{
    submit_for(4, S);
    struct ranks ranks = expect_start(4, 0);
    pass(S);
    expect(ACTION_ANSWER);
    core_drain(f.core, f.now_ns);
    expect_kill(ranks);
    expect_none();
    core_start_failed(f.core, f.now_ns, ranks.pool, ranks.generation);
    expect(ACTION_EXIT);
}
END_TEST

START_TEST(a_broken_device_does_not_block_the_others)
{
    int slot = submit(2);
    struct ranks ranks = expect_start(2, 0);
    core_start_failed(f.core, f.now_ns, ranks.pool, ranks.generation);
    ranks = expect_start(2, 1);
    core_start_failed(f.core, f.now_ns, ranks.pool, ranks.generation);
    ranks = expect_start(2, 0);
    core_start_failed(f.core, f.now_ns, ranks.pool, ranks.generation);
    ranks = expect_start(2, 1);
    ranks_ready(ranks);
    expect_run(ranks, slot);
}
END_TEST

START_TEST(a_pool_that_is_down_leaves_the_jobs_to_another)
{
    struct core_config config = fixture_config();
    config.hosts[0].device_count = 2;
    fixture_again(&config);
    int running = submit(1);
    struct ranks broken = expect_start(1, 0);
    int waiting = submit(1);
    struct ranks whole = expect_start(1, 1);
    ranks_ready(whole);
    uint64_t job = expect_run(whole, running).job;
    fail_starts(broken, 5);
    expect_none();
    ranks_report(whole, job);
    expect_answer(running, CAUSE_NONE, -1);
    expect_run(whole, waiting);
    submit(1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("core starts");
    TCase *c = tcase_create("starts");
    tcase_add_checked_fixture(c, begin, fixture_end);
    tcase_add_test(c, starts_that_are_killed_from_outside_count_half);
    tcase_add_test(c, five_failed_starts_and_the_pool_is_down);
    tcase_add_test(c, pauses_grow_with_the_time_of_failures);
    tcase_add_test(c, a_pool_that_is_down_costs_patience);
    tcase_add_test(c, a_success_resets_failed_starts);
    tcase_add_test(c, the_first_failed_rank_fails_the_start);
    tcase_add_test(c, ranks_that_are_not_ready_in_time_are_killed);
    tcase_add_test(c, a_start_may_fail_after_the_kill);
    tcase_add_test(c, a_broken_device_does_not_block_the_others);
    tcase_add_test(c, a_pool_that_is_down_leaves_the_jobs_to_another);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}
