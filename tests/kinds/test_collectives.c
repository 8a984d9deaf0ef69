// SPDX-License-Identifier: Apache-2.0
// Collectives through the real daemon and its ranks: right results, the same bits in every order
// and after other jobs, and dying ranks.
#include "tests/support/runner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "plan/collective.h"
#include "tests/daemon/daemon_scene.h"
#include "tests/kinds/job_calls.h"
#include "tests/kinds/random_jobs.h"

static struct collective usual(void)
{
    struct collective c;
    memset(&c, 0, sizeof(c));
    job_kind_collective.init(&c);
    c.world_size = 3;
    c.count = 1000;
    return c;
}

static struct wire_request request_of(const struct collective *c)
{
    return job_request(&job_kind_collective, c);
}

static uint64_t run(const struct collective *c)
{
    struct wire_request request = request_of(c);
    return job_digest(&d, &request);
}

// ---- results ----

START_TEST(every_operation_passes_with_figures)
{
    struct collective c = usual();
    for (int o = COLLECTIVE_ALL_REDUCE; o < COLLECTIVE_OPERATIONS; o++) {
        c.operation = (enum collective_operation)o;
        c.offset = o;
        struct wire_request request = request_of(&c);
        struct wire_reply reply = daemon_call(&d, &request);
        ck_assert_msg(reply.status == STATUS_OK, "%s", reply.message);
        ck_assert_int_eq(reply.result.verdict, VERDICT_PASS);
        for (int rank = 0; rank < 3; rank++) {
            const struct rank_report *report = &reply.result.ranks[rank];
            ck_assert_int_eq(report->figures_count, 3);
            ck_assert_str_eq(report->figures[0].name, "receive");
            ck_assert_int_eq(report->figures[0].judged, collective_receive_count(&c, rank));
            ck_assert_str_eq(report->figures[1].name, "send");
            ck_assert_int_eq(report->figures[1].judged, collective_send_count(&c, rank));
            ck_assert_str_eq(report->figures[2].name, "guards");
            ck_assert_int_gt(report->figures[2].judged, 0);
        }
        wire_reply_fini(&reply);
    }
}
END_TEST

// Exact results do not depend on the order of sums.
START_TEST(integers_have_the_same_bits_with_every_algorithm)
{
    struct collective c = usual();
    c.dtype = ELEMENT_INT32;
    c.world_size = 4;
    for (int reduction = REDUCTION_SUM; reduction < REDUCTIONS; reduction++) {
        c.reduction = (enum collective_reduction)reduction;
        c.algorithm = ALGORITHM_RING;
        uint64_t digest = run(&c);
        for (int a = ALGORITHM_TREE; a < ALGORITHM_NCCL; a++) {
            c.algorithm = (enum collective_algorithm)a;
            ck_assert_uint_eq(run(&c), digest);
        }
    }
}
END_TEST

// Minima and maxima do not depend on the order either, also with zeros of both signs and NaN.
START_TEST(minima_have_the_same_bits_with_every_algorithm)
{
    static const int worlds[] = {2, 3, 8};
    struct collective c = usual();
    int compared = 0;
    c.specials = true;
    c.world_size = worlds[_i];
    for (int dtype = ELEMENT_FP32; dtype <= ELEMENT_BF16; dtype++)
        for (int reduction = REDUCTION_MIN; reduction <= REDUCTION_MAX; reduction++) {
            c.dtype = (enum collective_element)dtype;
            c.reduction = (enum collective_reduction)reduction;
            c.algorithm = ALGORITHM_RING;
            uint64_t digest = run(&c);
            for (int a = ALGORITHM_TREE; a < ALGORITHM_NCCL; a++) {
                c.algorithm = (enum collective_algorithm)a;
                if (job_kind_collective.check(&c, NULL) == STATUS_OK) {
                    ck_assert_uint_eq(run(&c), digest);
                    compared++;
                }
            }
        }
    ck_assert_int_gt(compared, 0);
}
END_TEST

START_TEST(other_kinds_in_between_do_not_change_results)
{
    struct wire_request attention = daemon_request(METHOD_RUN);
    struct collective c = usual();
    attention.run.world_size = 3;
    attention.run.seed = 9;
    uint64_t of_attention = job_digest(&d, &attention), digest = run(&c);
    pid_t pid = daemon_rank_pid(&d, 3, 1);
    for (int i = 0; i < 4; i++) {
        struct collective other = random_collective();
        run(&other);
        attention.id = daemon_request(METHOD_RUN).id;
        ck_assert_uint_eq(job_digest(&d, &attention), of_attention);
        ck_assert_uint_eq(run(&c), digest);
    }
    ck_assert_int_eq(daemon_rank_pid(&d, 3, 1), pid);
}
END_TEST

START_TEST(consecutive_runs_give_the_same_bits)
{
    struct collective c = usual();
    uint64_t digest = run(&c);
    c.iterations = 5;
    ck_assert_uint_eq(run(&c), digest);
}
END_TEST

START_TEST(a_size_is_the_count_of_nccl_tests)
{
    struct collective c = usual(), same = usual();
    same.count = 250;
    c.size = 1003;
    ck_assert_uint_eq(run(&c), run(&same));
    c.operation = same.operation = COLLECTIVE_ALL_GATHER;
    same.count = 83;
    ck_assert_uint_eq(run(&c), run(&same));
}
END_TEST

START_TEST(an_unverified_job_does_not_pass)
{
    struct collective c = usual();
    c.verify = false;
    struct wire_request request = request_of(&c);
    job_unverified(&d, &request);
}
END_TEST

// ---- refusals and faults ----

static void expect_refused(const struct collective *c, enum status status, const char *text)
{
    struct wire_request request = request_of(c);
    job_refused(&d, &request, status, text);
}

START_TEST(invalid_jobs_are_refused)
{
    struct collective c = usual();
    c.root = 3;
    expect_refused(&c, STATUS_INVALID_ARGUMENT, "root is 3 with 3 ranks; accepted is 0 to 2");
    c = usual();
    c.in_place = true;
    c.operation = COLLECTIVE_ALL_TO_ALLV;
    expect_refused(&c, STATUS_UNIMPLEMENTED, "in_place is true with all_to_allv");
    c = usual();
    c.algorithm = ALGORITHM_TREE;
    c.operation = COLLECTIVE_ALL_GATHER;
    expect_refused(&c, STATUS_UNIMPLEMENTED, "algorithm is tree with all_gather");
    c.algorithm = ALGORITHM_HALVING;
    expect_refused(&c, STATUS_UNIMPLEMENTED, "halving with all_gather on 3 ranks");
    c = usual();
    c.algorithm = ALGORITHM_NCCL;
    expect_refused(&c, STATUS_UNIMPLEMENTED, "algorithm is nccl, which GPUs have");
    c.in_place = true;
    c.operation = COLLECTIVE_SEND_RECEIVE;
    expect_refused(&c, STATUS_UNIMPLEMENTED, "algorithm is nccl with send_receive in place");
    c = usual();
    c.in_place = true;
    c.iterations = 2;
    expect_refused(&c, STATUS_UNIMPLEMENTED, "iterations is 2 in place");
    c = usual();
    c.count = COLLECTIVE_COUNT_MAX;
    expect_refused(&c, STATUS_RESOURCE_EXHAUSTED, "GiB");
}
END_TEST

START_TEST(a_rank_that_is_killed_is_the_root_cause)
{
    struct collective c = usual();
    uint64_t digest = run(&c);
    c.count = 20000000;
    struct wire_request request = request_of(&c);
    job_killed(&d, &request);
    c = usual();
    ck_assert_uint_eq(run(&c), digest);
}
END_TEST

// At the deadline the answer names a rank that stops during the job. The next ranks are not
// affected.
START_TEST(a_rank_that_is_stopped_is_named_at_the_time_limit)
{
    struct collective c = usual();
    uint64_t digest = run(&c);
    c.iterations = 10000;
    struct wire_request request = request_of(&c);
    request.run_timeout_ns = UINT64_C(1500000000);
    struct call call = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    daemon_signal_rank(&d, 3, 1, SIGSTOP);
    struct wire_reply reply = daemon_call_end(&call);
    ck_assert_int_eq(reply.status, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply.message, "time limit of 1.5");
    expect_text(reply.message, "rank 1 of 3 was ");
    expect_text(reply.message, "stopped");
    ck_assert_int_eq(reply.failure.world_size, 3);
    ck_assert(reply.failure.ranks[1].culprit && !reply.failure.ranks[0].culprit);
    wire_reply_fini(&reply);
    c = usual();
    ck_assert_uint_eq(run(&c), digest);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("collectives");
    TCase *tcase = tcase_create("collectives");
    tcase_add_checked_fixture(tcase, daemon_setup_started, daemon_teardown_stopped);
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, every_operation_passes_with_figures);
    tcase_add_test(tcase, integers_have_the_same_bits_with_every_algorithm);
    tcase_add_loop_test(tcase, minima_have_the_same_bits_with_every_algorithm, 0, 3);
    tcase_add_test(tcase, other_kinds_in_between_do_not_change_results);
    tcase_add_test(tcase, consecutive_runs_give_the_same_bits);
    tcase_add_test(tcase, a_size_is_the_count_of_nccl_tests);
    tcase_add_test(tcase, an_unverified_job_does_not_pass);
    tcase_add_test(tcase, invalid_jobs_are_refused);
    tcase_add_test(tcase, a_rank_that_is_killed_is_the_root_cause);
    tcase_add_test(tcase, a_rank_that_is_stopped_is_named_at_the_time_limit);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
