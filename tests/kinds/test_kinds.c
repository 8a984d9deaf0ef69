// SPDX-License-Identifier: Apache-2.0
// A new kind of job through socket, daemon and ranks: verdicts, time limits, ranks that die, and
// attention before and after it on the same ranks.
#include "tests/support/runner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/daemon/daemon_scene.h"
#include "tests/kinds/job_calls.h"

#define WORLD 3

static void setup(void)
{
    char rank[4096];
    daemon_init(&d);
    d.program = "tests/kinds/toy_daemon";
    const char *const arguments[] = {
        "--rank-program", runner_build(rank, sizeof(rank), "tests/kinds/toy_rank") ? rank : "",
        NULL};
    daemon_start(&d, arguments);
}

// ---- requests ----

static struct wire_request sum_request(void)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.is_job = true;
    request.job = (struct job_text){.kind = "sum"};
    return request;
}

static void field_add(struct wire_request *request, const char *name, long long value)
{
    struct job_field *field = &request->job.fields[request->job.field_count++];
    snprintf(field->name, sizeof(field->name), "%s", name);
    snprintf(field->value, sizeof(field->value), "%lld", value);
}

static struct wire_request sum_of(int world_size, int count)
{
    struct wire_request request = sum_request();
    field_add(&request, "world_size", world_size);
    field_add(&request, "count", count);
    return request;
}

static struct wire_request attention(void)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = WORLD;
    request.run.seed = 7;
    return request;
}

// ---- results ----

START_TEST(a_sum_passes_with_figures_by_name)
{
    struct wire_request request = sum_of(WORLD, 5000);
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_msg(reply.status == STATUS_OK, "%s", reply.message);
    ck_assert_int_eq(reply.result.verdict, VERDICT_PASS);
    ck_assert_int_eq(reply.result.world_size, WORLD);
    for (int rank = 0; rank < WORLD; rank++) {
        const struct rank_report *report = &reply.result.ranks[rank];
        ck_assert_int_eq(report->figures_count, 1);
        ck_assert_int_eq(report->figures[0].tensor, 0);
        ck_assert_str_eq(report->figures[0].name, "sum");
        ck_assert_str_eq(figures_name(&report->figures[0]), "sum");
        ck_assert_int_eq(report->figures[0].judged, 5000);
        ck_assert_uint_eq(report->digest, reply.result.ranks[0].digest);
        ck_assert_uint_gt(report->timings.inputs_ns, 0);
    }
    wire_reply_fini(&reply);
    ck_assert(daemon_logged(&d, "case=\"sum w3 count=5000\""));
}
END_TEST

START_TEST(sizes_from_nothing_up_pass)
{
    static const int counts[] = {0, 1, 4097, 100000};
    for (int world = 1; world <= WORLD; world++)
        for (int i = 0; i < 4; i++) {
            struct wire_request request = sum_of(world, counts[i]);
            job_digest(&d, &request);
        }
}
END_TEST

START_TEST(a_wrong_sum_fails_and_keeps_its_ranks)
{
    struct wire_request request = sum_of(WORLD, 100), good = sum_of(WORLD, 100);
    field_add(&request, "wrong", 1);
    uint64_t digest = job_digest(&d, &good);
    pid_t pid = daemon_rank_pid(&d, WORLD, 1);
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.status, STATUS_OK);
    ck_assert_int_eq(reply.result.verdict, VERDICT_FAIL);
    for (int rank = 0; rank < WORLD; rank++) {
        const struct figures *f = &reply.result.ranks[rank].figures[0];
        ck_assert_int_eq(f->broken, rank == 1 ? RULE_ELEMENT : 0);
        ck_assert_int_eq(f->mismatches, rank == 1);
        ck_assert_int_eq(f->first_bad.position, rank == 1 ? 99 : -1);
    }
    wire_reply_fini(&reply);
    good = sum_of(WORLD, 100);
    ck_assert_uint_eq(job_digest(&d, &good), digest);
    ck_assert_int_eq(daemon_rank_pid(&d, WORLD, 1), pid);
}
END_TEST

// ---- refusals ----

static void expect_refused(const struct wire_request *request, enum status status, const char *text)
{
    struct wire_reply reply = daemon_call(&d, request);
    ck_assert_int_eq(reply.status, status);
    expect_text(reply.message, text);
    ck_assert_int_eq(memcmp(&reply.id, &request->id, sizeof(reply.id)), 0);
    wire_reply_fini(&reply);
}

START_TEST(invalid_jobs_are_refused_with_a_reason)
{
    struct wire_request request = sum_of(2, 10);
    strcpy(request.job.kind, "product");
    expect_refused(&request, STATUS_INVALID_ARGUMENT, "kind is 'product'; accepted is sum");
    request = sum_of(2, 10);
    strcpy(request.job.kind, "attention");
    expect_refused(&request, STATUS_INVALID_ARGUMENT, "kind is 'attention'; accepted is sum");
    request = sum_request();
    field_add(&request, "cuont", 1);
    expect_refused(&request, STATUS_INVALID_ARGUMENT,
                   "'cuont' is not a field of a job 'sum' (did you mean 'count'?)");
    request = sum_of(2, 2000000);
    expect_refused(&request, STATUS_INVALID_ARGUMENT,
                   "count is '2000000'; accepted is 0 to 1048576");
    request = sum_of(2, 10);
    field_add(&request, "count", 11);
    expect_refused(&request, STATUS_INVALID_ARGUMENT, "count is given twice");
    request = sum_of(2, 10);
    field_add(&request, "wrong", 2);
    expect_refused(&request, STATUS_INVALID_ARGUMENT, "wrong is 2 with 2 ranks");
    ck_assert_uint_eq(daemon_status(&d).refused, 6);
    ck_assert_int_eq(daemon_rank_count(&d), 0);
}
END_TEST

// ---- faults ----

// Starts a sum that does not end.
static struct call endless_begin(struct wire_request *request)
{
    *request = sum_of(WORLD, 10);
    field_add(request, "rounds", 2000000000);
    struct call call = daemon_call_begin(&d, request);
    daemon_await_running(&d, 1);
    return call;
}

START_TEST(a_rank_that_is_killed_is_the_root_cause)
{
    struct wire_request request, usual = attention();
    uint64_t digest = job_digest(&d, &usual);
    struct call call = endless_begin(&request);
    daemon_signal_rank(&d, WORLD, 1, SIGKILL);
    struct wire_reply reply = daemon_call_end(&call);
    ck_assert_int_eq(reply.status, STATUS_ABORTED);
    expect_text(reply.message, "rank 1 of 3 was killed by signal 9");
    ck_assert_int_eq(reply.failure.world_size, WORLD);
    for (int rank = 0; rank < WORLD; rank++) {
        ck_assert_int_eq(reply.failure.ranks[rank].culprit, rank == 1);
        ck_assert_str_eq(reply.failure.ranks[rank].fate,
                         rank == 1 ? "killed by signal 9 (SIGKILL)" : "aborted sibling");
    }
    wire_reply_fini(&reply);
    usual = attention();
    ck_assert_uint_eq(job_digest(&d, &usual), digest);
}
END_TEST

START_TEST(a_time_limit_names_phase_and_step)
{
    struct wire_request request = sum_of(WORLD, 10);
    field_add(&request, "rounds", 2000000000);
    request.run_timeout_ns = 200000000;
    struct wire_reply reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.status, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply.message, "the time limit of 200 ms passed while rank ");
    expect_text(reply.message, " of 3 was in forward, step ");
    wire_reply_fini(&reply);
    request = sum_of(WORLD, 10);
    job_digest(&d, &request);
}
END_TEST

START_TEST(a_job_can_be_cancelled)
{
    struct wire_request request, cancel = daemon_request(METHOD_CANCEL);
    struct call call = endless_begin(&request);
    cancel.cancel = request.id;
    struct wire_reply reply = daemon_call(&d, &cancel);
    ck_assert_int_eq(reply.status, STATUS_OK);
    reply = daemon_call_end(&call);
    ck_assert_int_eq(reply.status, STATUS_CANCELLED);
    wire_reply_fini(&reply);
}
END_TEST

// A sum that has killed two pools is refused. Attention and another sum are accepted.
START_TEST(a_job_that_kills_its_pools_is_poison)
{
    struct wire_request request = sum_of(WORLD, 10), other = sum_of(WORLD, 11);
    field_add(&request, "rounds", 2000000000);
    for (int i = 0; i < 2; i++) {
        request.id = daemon_request(METHOD_RUN).id;
        struct call call = daemon_call_begin(&d, &request);
        daemon_await_running(&d, 1);
        daemon_signal_rank(&d, WORLD, 2, SIGSEGV);
        struct wire_reply reply = daemon_call_end(&call);
        ck_assert_int_eq(reply.status, STATUS_ABORTED);
        wire_reply_fini(&reply);
    }
    request.id = daemon_request(METHOD_RUN).id;
    expect_refused(&request, STATUS_FAILED_PRECONDITION, "POISON");
    job_digest(&d, &other);
    struct wire_request usual = attention();
    job_digest(&d, &usual);
}
END_TEST

// ---- kinds in turns ----

START_TEST(kinds_in_turns_give_the_same_bits_on_the_same_ranks)
{
    struct wire_request request = attention();
    uint64_t of_attention = job_digest(&d, &request);
    pid_t pid = daemon_rank_pid(&d, WORLD, 0);
    request = sum_of(WORLD, 777);
    uint64_t of_sum = job_digest(&d, &request);
    for (int i = 0; i < 6; i++) {
        request = attention();
        ck_assert_uint_eq(job_digest(&d, &request), of_attention);
        request = sum_of(WORLD, 10000 * i);
        job_digest(&d, &request);
        request = sum_of(WORLD, 777);
        ck_assert_uint_eq(job_digest(&d, &request), of_sum);
    }
    ck_assert_int_eq(daemon_rank_pid(&d, WORLD, 0), pid);
    // The same request is answered again without a run.
    uint64_t passed = daemon_status(&d).passed;
    ck_assert_uint_eq(job_digest(&d, &request), of_sum);
    ck_assert_uint_eq(daemon_status(&d).passed, passed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kinds");
    TCase *tcase = tcase_create("kinds");
    tcase_add_checked_fixture(tcase, setup, daemon_teardown_stopped);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_sum_passes_with_figures_by_name);
    tcase_add_test(tcase, sizes_from_nothing_up_pass);
    tcase_add_test(tcase, a_wrong_sum_fails_and_keeps_its_ranks);
    tcase_add_test(tcase, invalid_jobs_are_refused_with_a_reason);
    tcase_add_test(tcase, a_rank_that_is_killed_is_the_root_cause);
    tcase_add_test(tcase, a_time_limit_names_phase_and_step);
    tcase_add_test(tcase, a_job_can_be_cancelled);
    tcase_add_test(tcase, a_job_that_kills_its_pools_is_poison);
    tcase_add_test(tcase, kinds_in_turns_give_the_same_bits_on_the_same_ranks);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
