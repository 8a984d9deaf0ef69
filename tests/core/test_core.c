// SPDX-License-Identifier: Apache-2.0
// The pool core: events of jobs and ranks, deadlines.
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static void begin(void)
{
    struct core_config config = fixture_config();
    fixture_begin(&config);
}

// ---- a job that goes well ----------------------------------------------------------------------

START_TEST(a_job_starts_its_pool_and_leaves_it_warm)
{
    int slot = submit(2);
    struct action start = expect(ACTION_START);
    ck_assert_uint_eq(start.devices, 0x3);
    struct ranks ranks = {start.pool, 2, start.generation};
    pass(3 * MS);
    rank_ready(ranks, 1);
    expect_none();
    rank_ready(ranks, 0);
    uint64_t job = expect_run(ranks, slot).job;
    pass(5 * MS);
    rank_reports(ranks, 1, job);
    expect_none();
    rank_reports(ranks, 0, job);
    struct action answer = expect_answer(slot, CAUSE_NONE, -1);
    ck_assert_int_eq(answer.status, STATUS_OK);
    ck_assert_uint_eq(answer.queue_ns, 0);
    ck_assert_uint_eq(answer.start_ns, 3 * MS);
    ck_assert_uint_eq(answer.run_ns, 5 * MS);

    struct action second = run_in(ranks);
    ck_assert_uint_gt(second.job, job);
    pass(MS);
    ranks_report(ranks, second.job);
    ck_assert_uint_eq(expect_answer(second.slot, CAUSE_NONE, -1).start_ns, 0);
    ck_assert_uint_eq(core_next_time(f.core), UINT64_MAX);
}
END_TEST

START_TEST(only_the_part_of_a_start_that_a_job_waited_for_counts)
{
    int first = submit(4);
    struct ranks ranks = expect_start(4, 0);
    pass(10 * MS);
    int second = submit(4);
    pass(10 * MS);
    ranks_ready(ranks);
    struct action run = expect_run(ranks, first);
    pass(7 * MS);
    ranks_report(ranks, run.job);
    ck_assert_uint_eq(expect_answer(first, CAUSE_NONE, -1).start_ns, 20 * MS);
    run = expect_run(ranks, second);
    ranks_report(ranks, run.job);
    struct action answer = expect_answer(second, CAUSE_NONE, -1);
    ck_assert_uint_eq(answer.start_ns, 10 * MS);
    ck_assert_uint_eq(answer.queue_ns, 7 * MS);
}
END_TEST

// The memory of this slot is still in the processor's cache.
START_TEST(the_slot_that_was_freed_last_is_used_next)
{
    struct ranks ranks = pool_up(2);
    int slot = -1;
    for (int i = 0; i < 3; i++) {
        struct action run = run_in(ranks);
        ck_assert(slot < 0 || run.slot == slot);
        slot = run.slot;
        ranks_report(ranks, run.job);
        expect_answer(slot, CAUSE_NONE, -1);
    }
}
END_TEST

// ---- lost ranks --------------------------------------------------------------------------------

START_TEST(a_rank_that_exits_costs_the_pool_and_one_job)
{
    struct ranks ranks = pool_up(4);
    struct action run = run_in(ranks);
    int queued = submit(4);
    rank_dies(ranks, 2);
    struct action answer = expect_answer(run.slot, CAUSE_RANK_EXITED, 2);
    ck_assert_int_eq(answer.status, STATUS_ABORTED);
    ck_assert_int_eq(answer.pool, ranks.pool);
    ck_assert_uint_eq(answer.generation, ranks.generation);
    expect_kill(ranks);
    rank_dies(ranks, 0);
    rank_dies(ranks, 3);
    expect_none(); // rank 1 still lives: nothing may start on its device
    rank_dies(ranks, 1);
    struct ranks next = expect_start(4, 0);
    ck_assert_uint_gt(next.generation, ranks.generation);
    ranks_ready(next);
    run = expect_run(next, queued);
    ranks_report(next, run.job);
    expect_answer(queued, CAUSE_NONE, -1);
}
END_TEST

START_TEST(a_rank_that_fails_is_named_and_others_are_not)
{
    struct ranks ranks = pool_up(2);
    struct action run = run_in(ranks);
    rank_fails(ranks, 1);
    ck_assert_int_eq(expect_answer(run.slot, CAUSE_RANK_FAILED, 1).status, STATUS_INTERNAL);
    expect_kill(ranks);
    rank_loses(ranks, 0, 1);
    rank_dies(ranks, 1);
    rank_dies(ranks, 0);
    expect_none(); // nobody waits: nothing is started
}
END_TEST

START_TEST(the_cause_behind_a_lost_peer_is_awaited)
{
    struct ranks ranks = pool_up(4);
    struct action run = run_in(ranks);
    rank_loses(ranks, 0, 1);
    expect_none();
    pass(99 * MS);
    expect_none();
    rank_dies(ranks, 1);
    ck_assert_int_eq(expect_answer(run.slot, CAUSE_RANK_EXITED, 1).status, STATUS_ABORTED);
    expect_kill(ranks);
}
END_TEST

START_TEST(the_failure_behind_a_lost_peer_is_the_cause)
{
    struct ranks ranks = pool_up(4);
    struct action run = run_in(ranks);
    rank_loses(ranks, 0, 1);
    rank_fails(ranks, 3);
    expect_answer(run.slot, CAUSE_RANK_FAILED, 3);
    expect_kill(ranks);
}
END_TEST

START_TEST(a_victim_is_not_the_cause)
{
    struct ranks ranks = pool_up(4);
    struct action run = run_in(ranks);
    rank_loses(ranks, 0, 3);
    rank_fails(ranks, 0);
    rank_dies(ranks, 0);
    rank_reports(ranks, 1, run.job);
    expect_none();
    rank_dies(ranks, 3);
    expect_answer(run.slot, CAUSE_RANK_EXITED, 3);
    expect_kill(ranks);
}
END_TEST

START_TEST(without_another_cause_the_lost_peer_is_named)
{
    struct ranks ranks = pool_up(4);
    struct action run = run_in(ranks);
    rank_loses(ranks, 0, 1);
    pass(50 * MS);
    rank_loses(ranks, 1, 2); // rank 1 is a victim, not the cause
    rank_loses(ranks, 3, 0); // rank 0 is a victim, too
    pass(49 * MS);
    expect_none();
    pass(MS);
    ck_assert_int_eq(expect_answer(run.slot, CAUSE_PEER_LOST, 2).status, STATUS_ABORTED);
    expect_kill(ranks);
}
END_TEST

START_TEST(when_all_ranks_have_lost_a_peer_no_cause_is_awaited)
{
    struct ranks ranks = pool_up(2);
    struct action run = run_in(ranks);
    rank_loses(ranks, 0, 1);
    rank_loses(ranks, 1, 0);
    rank_dies(ranks, 0);
    expect_none();
    rank_dies(ranks, 1);
    expect_answer(run.slot, CAUSE_PEER_LOST, 1);
    expect_none(); // nobody is left to kill
    submit(2);
    expect_start(2, 0);
}
END_TEST

START_TEST(a_rank_that_breaks_the_protocol_has_failed)
{
    for (int kind = 0; kind < 5; kind++) {
        struct ranks ranks = pool_up(2);
        struct action run = run_in(ranks);
        rank_reports(ranks, 0, run.job);
        if (kind == 0)
            rank_reports(ranks, 0, run.job);
        else if (kind == 1)
            rank_reports(ranks, 0, run.job + 1);
        else if (kind == 2)
            rank_ready(ranks, 0);
        else
            rank_loses(ranks, 0, kind == 3 ? 0 : 2); // itself; a rank that does not exist
        expect_answer(run.slot, CAUSE_RANK_FAILED, 0);
        expect_kill(ranks);
        ranks_reap(ranks);
    }
}
END_TEST

START_TEST(an_idle_pool_that_loses_a_rank_is_killed)
{
    for (int kind = 0; kind < 4; kind++) {
        struct ranks ranks = pool_up(2);
        if (kind == 0)
            rank_dies(ranks, 1);
        else if (kind == 1)
            rank_fails(ranks, 1);
        else if (kind == 2)
            rank_loses(ranks, 0, 1);
        else
            ranks_report(ranks, 1);
        expect_kill(ranks);
        ranks_reap_but(ranks, kind == 0 ? 1 : -1);
        expect_none();
    }
}
END_TEST

START_TEST(events_of_a_dead_generation_are_ignored)
{
    struct ranks old = pool_up(2);
    struct action run = run_in(old);
    rank_dies(old, 0);
    expect_answer(run.slot, CAUSE_RANK_EXITED, 0);
    expect_kill(old);
    rank_reports(old, 0, run.job); // after its exit
    rank_dies(old, 1);
    struct ranks ranks = pool_up(2);
    ck_assert_int_eq(ranks.pool, old.pool);
    run = run_in(ranks);
    rank_dies(old, 1);
    rank_fails(old, 0);
    ranks_report(old, run.job);
    core_start_failed(f.core, f.now_ns, old.pool, old.generation);
    expect_none();
    ranks_report(ranks, run.job);
    expect_answer(run.slot, CAUSE_NONE, -1);
}
END_TEST

// ---- deadlines ---------------------------------------------------------------------------------

START_TEST(the_deadline_of_a_running_job_ends_its_pool)
{
    struct ranks ranks = pool_up(2);
    int slot = submit_for(2, 3 * S);
    expect_run(ranks, slot);
    ck_assert_uint_eq(core_next_time(f.core), f.now_ns + 3 * S);
    pass(3 * S - 1);
    expect_none();
    pass(1);
    struct action answer = expect_answer(slot, CAUSE_DEADLINE_RUNNING, -1);
    ck_assert_int_eq(answer.status, STATUS_DEADLINE_EXCEEDED);
    ck_assert_int_eq(answer.pool, ranks.pool);
    expect_kill(ranks);
    ranks_report(ranks, answer.job); // too late
    expect_none();
}
END_TEST

START_TEST(the_deadline_counts_from_admission)
{
    struct ranks ranks = pool_up(4);
    struct action first = run_in(ranks);
    int second = submit_for(4, 3 * S);
    int third = submit_for(4, 4 * S);
    pass(3 * S);
    ck_assert_int_eq(expect_answer(second, CAUSE_DEADLINE_QUEUED, -1).status,
                     STATUS_DEADLINE_EXCEEDED);
    ranks_report(ranks, first.job);
    expect_answer(first.slot, CAUSE_NONE, -1);
    expect_run(ranks, third);
    pass(S);
    expect_answer(third, CAUSE_DEADLINE_RUNNING, -1);
    expect_kill(ranks);
}
END_TEST

START_TEST(the_deadline_covers_the_start)
{
    int first = submit_for(4, 2 * S);
    struct ranks ranks = expect_start(4, 0);
    pass(2 * S);
    struct action answer = expect_answer(first, CAUSE_DEADLINE_STARTING, -1);
    ck_assert_int_eq(answer.pool, ranks.pool);
    ck_assert_uint_eq(answer.start_ns, 2 * S);
    expect_none(); // the start continues
    pass(S);
    ranks_ready(ranks);
    run_in(ranks);
}
END_TEST

START_TEST(a_job_behind_the_one_that_waits_for_a_start_waits_in_the_queue)
{
    int first = submit(4);
    struct ranks ranks = expect_start(4, 0);
    int second = submit_for(4, 2 * S);
    pass(2 * S);
    expect_answer(second, CAUSE_DEADLINE_QUEUED, -1);
    ranks_ready(ranks);
    expect_run(ranks, first);
}
END_TEST

START_TEST(a_pool_between_two_attempts_counts_as_starting)
{
    int slot = submit_for(4, 100 * MS);
    fail_starts(expect_start(4, 0), 2);
    pass(100 * MS);
    struct action answer = expect_answer(slot, CAUSE_DEADLINE_STARTING, -1);
    ck_assert_int_eq(answer.pool, -1);
}
END_TEST

START_TEST(a_result_at_the_deadline_counts)
{
    struct ranks ranks = pool_up(1);
    int slot = submit_for(1, S);
    struct action run = expect_run(ranks, slot);
    f.now_ns += 2 * S;
    ranks_report(ranks, run.job);
    expect_answer(slot, CAUSE_NONE, -1);
}
END_TEST

START_TEST(every_event_handles_overdue_deadlines)
{
    int slot = submit_for(4, S);
    struct ranks ranks = expect_start(4, 0);
    f.now_ns += 2 * S;
    ranks_ready(ranks);
    expect_answer(slot, CAUSE_DEADLINE_STARTING, -1);
    expect_none(); // the job does not run
}
END_TEST

START_TEST(a_step_back_of_the_clock_is_no_step)
{
    int slot = submit_for(4, S);
    struct ranks ranks = expect_start(4, 0);
    core_time(f.core, f.now_ns - 3 * S);
    pass(S - 1);
    expect_none();
    pass(1);
    expect_answer(slot, CAUSE_DEADLINE_STARTING, -1);
    ranks_ready(ranks);
}
END_TEST

static int submit_limited(int world_size, uint64_t timeout_ns, uint64_t run_timeout_ns)
{
    struct core_request request = request_make(world_size);
    request.timeout_ns = timeout_ns;
    request.run_timeout_ns = run_timeout_ns;
    int slot;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    return slot;
}

START_TEST(the_limit_of_a_run_counts_from_its_start)
{
    struct ranks ranks = pool_up(4);
    struct action first = run_in(ranks);
    int second = submit_limited(4, 60 * S, 2 * S);
    pass(30 * S); // the wait does not count
    expect_none();
    ranks_report(ranks, first.job);
    expect_answer(first.slot, CAUSE_NONE, -1);
    expect_run(ranks, second);
    pass(2 * S - 1);
    expect_none();
    pass(1);
    struct action answer = expect_answer(second, CAUSE_DEADLINE_RUNNING, -1);
    ck_assert_uint_eq(answer.run_ns, 2 * S);
    expect_kill(ranks);
}
END_TEST

START_TEST(the_limit_of_a_run_gives_no_more_time)
{
    struct ranks ranks = pool_up(4);
    int slot = submit_limited(4, 3 * S, 5 * S);
    expect_run(ranks, slot);
    pass(3 * S);
    expect_answer(slot, CAUSE_DEADLINE_RUNNING, -1);
    expect_kill(ranks);
}
END_TEST

START_TEST(a_timeout_beyond_the_end_of_time_never_comes)
{
    int slot = submit_for(4, UINT64_MAX);
    struct ranks ranks = expect_start(4, 0);
    ranks_ready(ranks);
    expect_run(ranks, slot);
    ck_assert_uint_eq(core_next_time(f.core), UINT64_MAX);
}
END_TEST

// ------------------------------------------------------------------------------------------------

int main(void)
{
    Suite *suite = suite_create("core");
    TCase *c = fixture_case(suite, begin, "jobs");
    tcase_add_test(c, a_job_starts_its_pool_and_leaves_it_warm);
    tcase_add_test(c, only_the_part_of_a_start_that_a_job_waited_for_counts);
    tcase_add_test(c, the_slot_that_was_freed_last_is_used_next);
    c = fixture_case(suite, begin, "lost ranks");
    tcase_add_test(c, a_rank_that_exits_costs_the_pool_and_one_job);
    tcase_add_test(c, a_rank_that_fails_is_named_and_others_are_not);
    tcase_add_test(c, the_cause_behind_a_lost_peer_is_awaited);
    tcase_add_test(c, the_failure_behind_a_lost_peer_is_the_cause);
    tcase_add_test(c, a_victim_is_not_the_cause);
    tcase_add_test(c, without_another_cause_the_lost_peer_is_named);
    tcase_add_test(c, when_all_ranks_have_lost_a_peer_no_cause_is_awaited);
    tcase_add_test(c, a_rank_that_breaks_the_protocol_has_failed);
    tcase_add_test(c, an_idle_pool_that_loses_a_rank_is_killed);
    tcase_add_test(c, events_of_a_dead_generation_are_ignored);
    c = fixture_case(suite, begin, "deadlines");
    tcase_add_test(c, the_deadline_of_a_running_job_ends_its_pool);
    tcase_add_test(c, the_deadline_counts_from_admission);
    tcase_add_test(c, the_deadline_covers_the_start);
    tcase_add_test(c, a_job_behind_the_one_that_waits_for_a_start_waits_in_the_queue);
    tcase_add_test(c, a_pool_between_two_attempts_counts_as_starting);
    tcase_add_test(c, a_result_at_the_deadline_counts);
    tcase_add_test(c, every_event_handles_overdue_deadlines);
    tcase_add_test(c, a_step_back_of_the_clock_is_no_step);
    tcase_add_test(c, the_limit_of_a_run_counts_from_its_start);
    tcase_add_test(c, the_limit_of_a_run_gives_no_more_time);
    tcase_add_test(c, a_timeout_beyond_the_end_of_time_never_comes);
    return runner_run(suite);
}
