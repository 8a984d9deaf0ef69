// SPDX-License-Identifier: Apache-2.0
// The pool core: a full queue, request ids, cancelling, cases that kill their pools.
#include <string.h>

#include "tests/core/core_fixture.h"
#include "tests/support/runner.h"

static void begin(void)
{
    struct core_config config = fixture_config();
    fixture_begin(&config);
}

// ---- clients -----------------------------------------------------------------------------------

START_TEST(a_full_queue_refuses_at_once)
{
    int slots[8];
    slots[0] = submit(4);
    struct ranks ranks = expect_start(4, 0);
    for (int i = 1; i < 8; i++)
        slots[i] = submit(4);
    submit_refused(4, STATUS_RESOURCE_EXHAUSTED, "8 requests");
    ranks_ready(ranks);
    struct action run = expect_run(ranks, slots[0]);
    submit_refused(2, STATUS_RESOURCE_EXHAUSTED, "full");
    run_finish(ranks, run);
    expect_run(ranks, slots[1]);
    ck_assert_int_eq(submit(4), slots[0]);
}
END_TEST

static void expect_admission(struct admission admission, int kind, int place)
{
    ck_assert_int_eq((int)admission.kind, kind);
    ck_assert_int_eq(admission.index, place);
}

START_TEST(a_request_id_runs_once)
{
    struct ranks ranks = pool_up(1);
    struct core_request request = request_make(1), queued = request_make(1);
    int slot, other;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    struct action run = expect_run(ranks, slot);
    expect_admission(submit_again(&request), ADMISSION_ATTACHED, slot);
    ck_assert_int_eq(submit_request(&queued, &other), STATUS_OK);
    expect_start(1, 1);
    expect_admission(submit_again(&queued), ADMISSION_ATTACHED, other);
    ranks_report(ranks, run.job);
    struct action answer = expect_answer(slot, CAUSE_NONE, -1);
    run = expect_run(ranks, other);
    expect_admission(submit_again(&request), ADMISSION_ANSWERED, answer.answer_index);
    run_finish(ranks, run);
}
END_TEST

START_TEST(an_answered_request_is_forgotten_after_so_many_others)
{
    struct ranks ranks = pool_up(1);
    struct core_request request = request_make(1);
    int slot;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    run_finish(ranks, expect_run(ranks, slot));
    for (int i = 0; i < ANSWERED_IDS_MAX - 1; i++)
        run_finish(ranks, run_in(ranks));
    struct admission admission = submit_again(&request);
    ck_assert_int_eq(admission.kind, ADMISSION_ANSWERED);
    // The next answer replaces it.
    struct action run = run_in(ranks);
    ranks_report(ranks, run.job);
    ck_assert_int_eq(expect_answer(run.slot, CAUSE_NONE, -1).answer_index, admission.index);
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    expect_run(ranks, slot);
}
END_TEST

START_TEST(a_known_request_id_with_another_case_is_refused)
{
    struct ranks ranks = pool_up(1);
    struct core_request request = request_make(1);
    int slot, other = -1;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    struct action run = expect_run(ranks, slot);
    for (int answered = 0; answered < 2; answered++) {
        struct core_request another = request;
        another.case_hash++;
        ck_assert_int_eq(submit_request(&another, &other), STATUS_ALREADY_EXISTS);
        ck_assert_msg(strstr(f.error.text, "another case"), "%s", f.error.text);
        another = request;
        another.user++;
        ck_assert_int_eq(submit_request(&another, &other), STATUS_ALREADY_EXISTS);
        ck_assert_msg(strstr(f.error.text, "another user"), "%s", f.error.text);
        if (!answered)
            run_finish(ranks, run);
    }
}
END_TEST

START_TEST(every_outcome_is_stored)
{
    struct ranks ranks = pool_up(4);
    struct core_request request = request_make(4);
    int slot;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    expect_run(ranks, slot);
    rank_dies(ranks, 2);
    struct action answer = expect_answer(slot, CAUSE_RANK_EXITED, 2);
    expect_kill(ranks);
    expect_admission(submit_again(&request), ADMISSION_ANSWERED, answer.answer_index);
    // Also while the core drains.
    core_drain(f.core, f.now_ns);
    expect_admission(submit_again(&request), ADMISSION_ANSWERED, answer.answer_index);
}
END_TEST

START_TEST(a_refused_request_id_may_come_again)
{
    struct core_request request = request_make(9);
    int slot;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_FAILED_PRECONDITION);
    request.world_size = 4;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    expect_start(4, 0);
}
END_TEST

START_TEST(invalid_requests_are_refused)
{
    struct core_request request = request_make(2);
    int slot;
    submit_refused(0, STATUS_INVALID_ARGUMENT, "world_size: 0");
    submit_refused(-1, STATUS_INVALID_ARGUMENT, "1..64");
    submit_refused(WORLD_SIZE_MAX + 1, STATUS_INVALID_ARGUMENT, "65");
    request.timeout_ns = 0;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_INVALID_ARGUMENT);
}
END_TEST

static enum status cancel_as(const struct core_request *request, uint32_t user)
{
    enum status status = core_cancel(f.core, f.now_ns, &request->id, user, &f.error);
    core_assert(f.core);
    return status;
}

static enum status cancel(const struct core_request *request)
{
    return cancel_as(request, request->user);
}

START_TEST(cancelling)
{
    struct ranks ranks = pool_up(4);
    struct core_request running = request_make(4), queued = request_make(4);
    int running_slot, queued_slot;
    ck_assert_int_eq(submit_request(&running, &running_slot), STATUS_OK);
    expect_run(ranks, running_slot);
    ck_assert_int_eq(submit_request(&queued, &queued_slot), STATUS_OK);
    int next = submit(4);

    ck_assert_int_eq(cancel(&queued), STATUS_OK);
    ck_assert_int_eq(expect_answer(queued_slot, CAUSE_CANCELLED, -1).status, STATUS_CANCELLED);
    expect_none();
    ck_assert_int_eq(cancel(&queued), STATUS_NOT_FOUND);
    ck_assert_msg(strstr(f.error.text, "answered"), "%s", f.error.text);

    ck_assert_int_eq(cancel(&running), STATUS_OK);
    expect_answer(running_slot, CAUSE_CANCELLED, -1);
    expect_kill(ranks);
    ranks_reap(ranks);
    ranks = start_ready(4, 0);
    expect_run(ranks, next);

    struct core_request unknown = request_make(4);
    ck_assert_int_eq(cancel(&unknown), STATUS_NOT_FOUND);
}
END_TEST

START_TEST(only_own_requests_can_be_cancelled)
{
    struct ranks ranks = pool_up(4);
    struct core_request requests[2] = {request_make(4), request_make(4)};
    int slots[2];
    for (int i = 0; i < 2; i++) {
        requests[i].user = 1000;
        ck_assert_int_eq(submit_request(&requests[i], &slots[i]), STATUS_OK);
        if (i == 0)
            expect_run(ranks, slots[0]);
    }
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(cancel_as(&requests[i], 1001), STATUS_PERMISSION_DENIED);
        ck_assert_msg(strstr(f.error.text, "another user"), "%s", f.error.text);
        expect_none();
    }
    ck_assert_int_eq(cancel_as(&requests[1], CORE_ANY_USER), STATUS_OK);
    expect_answer(slots[1], CAUSE_CANCELLED, -1);
    ck_assert_int_eq(cancel(&requests[0]), STATUS_OK);
    expect_answer(slots[0], CAUSE_CANCELLED, -1);
    expect_kill(ranks);
}
END_TEST

static enum status submit_as(uint32_t user, int *slot)
{
    struct core_request request = request_make(4);
    request.user = user;
    return submit_request(&request, slot);
}

START_TEST(no_user_takes_the_whole_queue)
{
    struct core_config config = fixture_config();
    config.user_queue_max = 3;
    fixture_again(&config);
    struct ranks ranks = pool_up(4);
    int slots[8];
    ck_assert_int_eq(submit_as(1, &slots[0]), STATUS_OK);
    struct action run = expect_run(ranks, slots[0]);
    for (int i = 1; i < 3; i++)
        ck_assert_int_eq(submit_as(1, &slots[i]), STATUS_OK);
    ck_assert_int_eq(submit_as(1, &slots[3]), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(f.error.text, "3 requests of one user"), "%s", f.error.text);
    for (int i = 3; i < 6; i++)
        ck_assert_int_eq(submit_as(2, &slots[i]), STATUS_OK);
    ck_assert_int_eq(submit_as(2, &slots[6]), STATUS_RESOURCE_EXHAUSTED);
    for (int i = 6; i < 8; i++)
        ck_assert_int_eq(submit_as((uint32_t)i, &slots[i]), STATUS_OK);
    ck_assert_int_eq(submit_as(9, &slots[0]), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_msg(strstr(f.error.text, "the queue is full"), "%s", f.error.text);
    // An answered job makes room for a job of the same user.
    run_finish(ranks, run);
    expect_run(ranks, slots[1]);
    ck_assert_int_eq(submit_as(2, &slots[0]), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(submit_as(1, &slots[0]), STATUS_OK);
}
END_TEST

START_TEST(limits_change_while_it_runs)
{
    struct ranks ranks = pool_up(4), other = pool_up(2);
    int slots[4];
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(submit_as(1, &slots[i]), STATUS_OK);
        if (i == 0)
            expect_run(ranks, slots[0]);
    }
    pass(3 * S);
    core_limit(f.core, f.now_ns,
               &(struct core_limits){.user_queue_max = 2, .idle_timeout_ns = 5 * S});
    core_assert(f.core);
    expect_none(); // admitted jobs stay
    ck_assert_int_eq(submit_as(1, &slots[3]), STATUS_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(submit_as(2, &slots[3]), STATUS_OK);
    pass(5 * S - 1);
    expect_none();
    pass(1);
    expect_kill(other); // it has been idle for 5 s since the change
    core_limit(f.core, f.now_ns, &(struct core_limits){.user_queue_max = 0});
    core_assert(f.core);
    ck_assert_int_eq(submit_as(1, &slots[3]), STATUS_OK);
    ranks_reap(other);
    expect_none();
}
END_TEST

START_TEST(abandoned_jobs_are_dropped_from_the_queue)
{
    struct ranks ranks = pool_up(4);
    struct core_request requests[4];
    struct action run = {0};
    int slots[4];
    for (int i = 0; i < 4; i++) {
        requests[i] = request_make(4);
        ck_assert_int_eq(submit_request(&requests[i], &slots[i]), STATUS_OK);
        if (i == 0)
            run = expect_run(ranks, slots[0]);
    }
    const int gone[] = {slots[0], slots[1], slots[3]};
    core_abandon(f.core, f.now_ns, gone, 3);
    core_assert(f.core);
    ck_assert_int_eq(expect_answer(slots[1], CAUSE_CANCELLED, -1).answer_index, -1);
    expect_answer(slots[3], CAUSE_CANCELLED, -1);
    expect_none(); // the running job continues
    ranks_report(ranks, run.job);
    struct action answer = expect_answer(slots[0], CAUSE_NONE, -1);
    expect_run(ranks, slots[2]);
    // The answer of a job that ran is stored. A job that did not run may be submitted again.
    expect_admission(submit_again(&requests[0]), ADMISSION_ANSWERED, answer.answer_index);
    ck_assert_int_eq(submit_request(&requests[1], &slots[1]), STATUS_OK);
}
END_TEST

// ---- poison ------------------------------------------------------------------------------------

static struct ranks kill_with(uint64_t hash, struct ranks ranks)
{
    struct core_request request = request_make(1);
    request.case_hash = hash;
    int slot;
    ck_assert_int_eq(submit_request(&request, &slot), STATUS_OK);
    expect_run(ranks, slot);
    rank_dies(ranks, 0);
    expect_answer(slot, CAUSE_RANK_EXITED, 0);
    return pool_up(1);
}

static enum status submit_case(uint64_t hash, int *slot)
{
    struct core_request request = request_make(1);
    request.case_hash = hash;
    return submit_request(&request, slot);
}

START_TEST(a_case_that_has_killed_two_pools_is_refused_for_an_hour)
{
    struct core_config config = fixture_config();
    config.hosts[0].device_count = 1;
    fixture_again(&config);
    struct ranks ranks = pool_up(1);
    ranks = kill_with(666, ranks);
    int slot, waiting, other;
    ck_assert_int_eq(submit_case(666, &slot), STATUS_OK);
    expect_run(ranks, slot);
    ck_assert_int_eq(submit_case(666, &waiting), STATUS_OK);
    ck_assert_int_eq(submit_case(667, &other), STATUS_OK);
    rank_fails(ranks, 0);
    expect_answer(slot, CAUSE_RANK_FAILED, 0);
    ck_assert_int_eq(expect_answer(waiting, CAUSE_POISON, -1).status, STATUS_FAILED_PRECONDITION);
    expect_kill(ranks);
    ranks_reap(ranks);
    ranks = start_ready(1, 0);
    struct action run = expect_run(ranks, other);
    run_finish(ranks, run);

    ck_assert_int_eq(submit_case(666, &slot), STATUS_FAILED_PRECONDITION);
    ck_assert_msg(strstr(f.error.text, "POISON"), "%s", f.error.text);
    pass(3600 * S - 1);
    ck_assert_int_eq(submit_case(666, &slot), STATUS_FAILED_PRECONDITION);
    pass(1);
    ck_assert_int_eq(submit_case(666, &slot), STATUS_OK);
    expect_run(ranks, slot);
}
END_TEST

START_TEST(a_complete_run_clears_the_kills_of_a_case)
{
    struct ranks ranks = kill_with(666, pool_up(1));
    int slot;
    ck_assert_int_eq(submit_case(666, &slot), STATUS_OK);
    run_finish(ranks, expect_run(ranks, slot));
    ranks = kill_with(666, ranks);
    ck_assert_int_eq(submit_case(666, &slot), STATUS_OK);
    expect_run(ranks, slot);
}
END_TEST

START_TEST(kills_from_outside_do_not_count_as_poison)
{
    struct ranks ranks = pool_up(1);
    for (int i = 0; i < 4; i++) {
        int slot;
        ck_assert_int_eq(submit_case(666, &slot), STATUS_OK);
        expect_run(ranks, slot);
        if (i % 2)
            core_rank_ending(f.core, f.now_ns, ranks.pool, ranks.generation, 0,
                             &(struct rank_end){RANK_SIGNALLED, 9});
        else
            core_rank_exited(f.core, f.now_ns, ranks.pool, ranks.generation, 0,
                             &(struct rank_end){RANK_SIGNALLED, 9});
        expect_answer(slot, CAUSE_RANK_EXITED, 0);
        if (i % 2) {
            expect_kill(ranks);
            core_rank_exited(f.core, f.now_ns, ranks.pool, ranks.generation, 0,
                             &(struct rank_end){RANK_SIGNALLED, 9});
        }
        ranks = pool_up(1);
    }
}
END_TEST

START_TEST(deadlines_and_cancellations_do_not_count_as_poison)
{
    for (int i = 0; i < 3; i++) {
        struct ranks ranks = pool_up(1);
        int slot;
        ck_assert_int_eq(submit_case(666, &slot), STATUS_OK);
        expect_run(ranks, slot);
        pass(60 * S);
        expect_answer(slot, CAUSE_DEADLINE_RUNNING, -1);
        expect_kill(ranks);
        ranks_reap(ranks);
    }
}
END_TEST

// ------------------------------------------------------------------------------------------------

int main(void)
{
    Suite *suite = suite_create("core clients");
    TCase *c = fixture_case(suite, begin, "clients");
    tcase_add_test(c, a_full_queue_refuses_at_once);
    tcase_add_test(c, a_request_id_runs_once);
    tcase_add_test(c, an_answered_request_is_forgotten_after_so_many_others);
    tcase_add_test(c, a_known_request_id_with_another_case_is_refused);
    tcase_add_test(c, every_outcome_is_stored);
    tcase_add_test(c, a_refused_request_id_may_come_again);
    tcase_add_test(c, invalid_requests_are_refused);
    tcase_add_test(c, cancelling);
    tcase_add_test(c, only_own_requests_can_be_cancelled);
    tcase_add_test(c, no_user_takes_the_whole_queue);
    tcase_add_test(c, limits_change_while_it_runs);
    tcase_add_test(c, abandoned_jobs_are_dropped_from_the_queue);
    c = fixture_case(suite, begin, "poison");
    tcase_add_test(c, a_case_that_has_killed_two_pools_is_refused_for_an_hour);
    tcase_add_test(c, a_complete_run_clears_the_kills_of_a_case);
    tcase_add_test(c, kills_from_outside_do_not_count_as_poison);
    tcase_add_test(c, deadlines_and_cancellations_do_not_count_as_poison);
    return runner_run(suite);
}
