// SPDX-License-Identifier: Apache-2.0
// The real daemon with the real ranks: cases, dying ranks, deadlines, queue, cancelling, and leaks.
#include "tests/support/runner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"
#include "tests/support/part.h"

// ---- cases -------------------------------------------------------------------------------------

START_TEST(test_case_passes)
{
    daemon_start(&d, NULL);
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = 4;
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    const struct wire_result *result = &reply.result;
    ck_assert_int_eq(result->verdict, VERDICT_PASS);
    ck_assert_int_eq(result->world_size, 4);
    for (int rank = 0; rank < 4; rank++) {
        ck_assert_int_eq(result->ranks[rank].rank, rank);
        ck_assert(result->ranks[rank].pass);
        ck_assert_int_gt(result->ranks[rank].figures_count, 0);
    }
    ck_assert_uint_gt(result->run_ns, 0);
    ck_assert_uint_ge(result->total_ns, result->run_ns + result->queue_ns + result->start_ns);
    ck_assert_int_eq(memcmp(&reply.id, &request.id, sizeof(reply.id)), 0);
    wire_reply_fini(&reply);

    struct wire_status status = daemon_status(&d);
    ck_assert_uint_eq(status.admitted, 1);
    ck_assert_uint_eq(status.passed, 1);
    ck_assert_uint_eq(status.failed + status.errors + status.refused, 0);
    ck_assert_int_eq(daemon_rank_count(&d), 4);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// A case without comparison has not passed. It counts as admitted and unverified only.
START_TEST(test_unverified_case_does_not_pass)
{
    daemon_start(&d, NULL);
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.verify = VERIFY_OFF;
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    ck_assert_int_eq(reply.result.verdict, VERDICT_UNVERIFIED);
    for (int rank = 0; rank < reply.result.world_size; rank++) {
        ck_assert_int_eq(reply.result.ranks[rank].figures_count, 0);
        ck_assert_uint_gt(reply.result.ranks[rank].timings.forward_ns, 0);
        ck_assert_uint_eq(reply.result.ranks[rank].timings.reference_ns, 0);
    }
    wire_reply_fini(&reply);
    run_and_pass(&d, 2);
    struct wire_status status = daemon_status(&d);
    ck_assert_uint_eq(status.admitted, 2);
    ck_assert_uint_eq(status.passed, 1);
    ck_assert_uint_eq(status.failed + status.errors + status.refused, 0);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// The digest depends on the case alone: not on the neighbours, not on the pool's age.
START_TEST(test_same_case_same_bits)
{
    daemon_start(&d, NULL);
    struct wire_request request = daemon_request(METHOD_RUN);
    uint64_t digest = 0;
    for (int i = 0; i < 20; i++) {
        struct request_id id = daemon_request(METHOD_STATUS).id;
        request.id = id;
        struct wire_reply reply = daemon_call(&d, &request);
        expect_status(&reply, STATUS_OK);
        if (i == 0)
            digest = reply.result.digest;
        ck_assert_uint_eq(reply.result.digest, digest);
        wire_reply_fini(&reply);
        run_and_pass(&d, i % 3 == 0 ? 4 : 2);
    }
    request.run.seed++;
    request.id = daemon_request(METHOD_STATUS).id;
    struct wire_reply other = daemon_call(&d, &request);
    ck_assert_uint_ne(other.result.digest, digest);
    wire_reply_fini(&other);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_describe_and_status)
{
    static const char *const arguments[] = {"--devices", "3",  "--queue-max", "17",
                                            "--memory",  "3G", NULL};
    daemon_start(&d, arguments);
    struct wire_request request = daemon_request(METHOD_DESCRIBE);
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    ck_assert_str_eq(reply.description.backend, "cpu");
    ck_assert_int_eq(reply.description.devices, 3);
    ck_assert_int_eq(reply.description.queue_max, 17);
    ck_assert_int_eq(reply.description.memory_bytes_max, INT64_C(3) << 30);
    ck_assert_int_eq(reply.description.world_size_max, WORLD_SIZE_MAX);
    ck_assert_uint_eq(reply.description.timeout_default_ns, TIMEOUT_DEFAULT_NS);
    wire_reply_fini(&reply);

    run_and_pass(&d, 2);
    request = daemon_request(METHOD_STATUS);
    reply = daemon_call(&d, &request);
    ck_assert_int_eq(reply.pools.pool_count, 1);
    ck_assert_int_eq(reply.pools.pools[0].world_size, 2);
    ck_assert_int_eq(reply.pools.pools[0].state, POOL_IDLE);
    ck_assert_uint_eq(reply.pools.pools[0].jobs, 1);
    ck_assert_uint_gt(reply.pools.uptime_ns, 0);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_largest_world)
{
    daemon_start(&d, NULL);
    run_and_pass(&d, 1);
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = WORLD_SIZE_MAX;
    request.run.seqlen_q = request.run.seqlen_kv = 100; // fewer tokens than chunks
    struct wire_reply reply = daemon_call(&d, &request);
    expect_pass(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_memory_refused)
{
    static const char *const arguments[] = {"--memory", "1M", NULL};
    daemon_start(&d, arguments);
    struct wire_request request = daemon_request_long(2);
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_RESOURCE_EXHAUSTED);
    expect_text(reply.message, "GiB over 2 ranks, this daemon grants 1.00 MiB;");
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_rank_count(&d), 0); // no rank was started
    ck_assert_uint_eq(daemon_status(&d).refused, 1);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_idle_pool_stops)
{
    static const char *const arguments[] = {"--idle-timeout", "50ms", NULL};
    daemon_start(&d, arguments);
    run_and_pass(&d, 2);
    while (daemon_rank_count(&d) > 0)
        usleep(5000);
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Starts pools until the descriptors run out. The incomplete pool is removed, and the daemon
// continues with the others.
START_TEST(test_descriptors_run_out)
{
    enum { CLIENTS = 24 }; // within the limit of one user
    struct rlimit few = {300, 300};
    int ranks = 0, refused = 0, clients[CLIENTS];
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    daemon_start(&d, NULL);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = daemon_connect(&d);
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = 30;
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_FAILED_PRECONDITION);
    expect_text(reply.message, "file descriptors at once");
    wire_reply_fini(&reply);
    for (int world = 13; world > 2 && !refused; world--) {
        request = daemon_request(METHOD_RUN);
        request.run.world_size = world;
        reply = daemon_call(&d, &request);
        if (reply.status == STATUS_OK) {
            ranks += world;
        } else {
            expect_status(&reply, STATUS_UNAVAILABLE);
            expect_text(reply.message, "Too many open files");
            refused++;
        }
        wire_reply_fini(&reply);
    }
    ck_assert_int_eq(refused, 1);
    ck_assert_int_eq(daemon_rank_count(&d), ranks);
    request = daemon_request(METHOD_RUN);
    request.run.world_size = 13;
    reply = daemon_call(&d, &request);
    expect_pass(&reply);
    for (int i = 0; i < CLIENTS; i++)
        close(clients[i]);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// ---- ranks that are lost -----------------------------------------------------------------------

// Runs a long case and queues two small ones. Sends the signal to rank 1 of 2 and returns the
// answer to the long case. The small cases must pass, and another one after them.
static struct wire_reply harm_in_flight(int signal, uint64_t timeout_ns, uint64_t run_timeout_ns)
{
    struct wire_request victim = daemon_request_long(2);
    struct wire_request queued[2] = {daemon_request(METHOD_RUN), daemon_request(METHOD_RUN)};
    victim.timeout_ns = timeout_ns;
    victim.run_timeout_ns = run_timeout_ns;
    if (timeout_ns > 0 || run_timeout_ns > 0) { // long, but not refused at once
        victim.run.batch = 2;
        victim.run.seqlen_q = victim.run.seqlen_kv = 3072;
    }
    struct call call = daemon_call_begin(&d, &victim);
    daemon_await_running(&d, 1);
    struct call behind[2] = {daemon_call_begin(&d, &queued[0]), daemon_call_begin(&d, &queued[1])};
    daemon_await_queued(&d, 2);
    daemon_signal_rank(&d, 2, 1, signal);
    struct wire_reply reply = daemon_call_end(&call);
    for (int i = 0; i < 2; i++) {
        struct wire_reply answer = daemon_call_end(&behind[i]);
        expect_pass(&answer);
    }
    run_and_pass(&d, 2);
    return reply;
}

static void expect_culprit(const struct wire_reply *reply, int culprit, char state)
{
    ck_assert_int_eq(reply->failure.world_size, 2);
    for (int rank = 0; rank < 2; rank++) {
        const struct wire_rank_state *r = &reply->failure.ranks[rank];
        ck_assert_int_eq(r->rank, rank);
        ck_assert_int_eq(r->culprit, rank == culprit);
        if (rank != culprit)
            ck_assert_str_eq(r->fate, "aborted sibling");
        else
            ck_assert_int_eq(r->state, state);
    }
}

START_TEST(test_rank_killed)
{
    daemon_start(&d, NULL);
    run_and_pass(&d, 2);
    struct wire_reply reply = harm_in_flight(SIGKILL, 0, 0);
    expect_status(&reply, STATUS_ABORTED);
    expect_text(reply.message, "rank 1 of 2 was killed by signal 9");
    expect_culprit(&reply, 1, 'X');
    expect_text(reply.failure.ranks[1].fate, "killed by signal 9");
    wire_reply_fini(&reply);
    struct wire_status status = daemon_status(&d);
    ck_assert_uint_eq(status.errors, 1);
    ck_assert_uint_eq(status.passed, 4);
    struct wire_request request = daemon_request(METHOD_STATUS);
    reply = daemon_call(&d, &request);
    ck_assert_str_eq(reply.pools.pools[0].last_failure, "rank 1 was killed by signal 9 (SIGKILL)");
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_rank_aborts)
{
    daemon_start(&d, NULL);
    struct wire_reply reply = harm_in_flight(SIGABRT, 0, 0);
    expect_status(&reply, STATUS_ABORTED);
    expect_text(reply.message, "rank 1 of 2 was killed by signal 6");
    expect_culprit(&reply, 1, 'X');
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// With the time limit of the request, and with that of the run.
START_TEST(test_rank_stopped_until_deadline)
{
    const uint64_t limit_ns = UINT64_C(4000000000);
    daemon_start(&d, NULL);
    run_and_pass(&d, 2);
    for (int of_run = 0; of_run < 2; of_run++) {
        struct wire_reply reply =
            harm_in_flight(SIGSTOP, of_run ? 0 : limit_ns, of_run ? limit_ns : 0);
        expect_status(&reply, STATUS_DEADLINE_EXCEEDED);
        expect_text(reply.message, "time limit of 4.0");
        expect_text(reply.message, "rank 1 of 2 was ");
        expect_text(reply.message, "stopped");
        expect_culprit(&reply, 1, 'T');
        wire_reply_fini(&reply);
    }
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Loses pools by signals and by cancelling, many times. Then the daemon has as many ranks and
// descriptors as before.
START_TEST(test_pools_leave_nothing)
{
    daemon_start(&d, NULL);
    run_and_pass(&d, 2);
    int descriptors = daemon_descriptors(&d);
    ck_assert_int_eq(daemon_mapped(&d), 1);
    for (int i = 0; i < 200 / test_part(); i++) {
        static const int signals[] = {SIGKILL, SIGABRT, SIGSEGV};
        struct wire_request request = daemon_request_long(2);
        struct call call = daemon_call_begin(&d, &request);
        daemon_await_running(&d, 1);
        if (i % 4 == 3) {
            struct wire_request cancel = daemon_request(METHOD_CANCEL);
            cancel.cancel = request.id;
            struct wire_reply answer = daemon_call(&d, &cancel);
            expect_status(&answer, STATUS_OK);
            wire_reply_fini(&answer);
        } else {
            daemon_signal_rank(&d, 2, i % 2, signals[i % 4]);
        }
        struct wire_reply reply = daemon_call_end(&call);
        expect_status(&reply, i % 4 == 3 ? STATUS_CANCELLED : STATUS_ABORTED);
        wire_reply_fini(&reply);
    }
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_rank_count(&d), 2);
    ck_assert_int_eq(daemon_descriptors(&d), descriptors);
    ck_assert_int_eq(daemon_mapped(&d), 1);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// ---- queue -------------------------------------------------------------------------------------

START_TEST(test_deadline_in_queue)
{
    static const char *const arguments[] = {"--user-running-max", "1", NULL};
    daemon_start(&d, arguments);
    struct wire_request first = daemon_request_long(2), second = daemon_request(METHOD_RUN);
    second.timeout_ns = 200 * UINT64_C(1000000);
    struct call running = daemon_call_begin(&d, &first);
    daemon_await_running(&d, 1);
    struct wire_reply reply = daemon_call(&d, &second);
    expect_status(&reply, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply.message, "waited for its turn");
    expect_text(reply.message, ", at a limit of the daemon on this user (user-running-max); ");
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_status(&d).running, 1); // the first case still runs
    daemon_signal_rank(&d, 2, 0, SIGKILL);
    reply = daemon_call_end(&running);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_busy_when_full)
{
    static const char *const arguments[] = {"--queue-max", "2", "--user-queue-max", "2", NULL};
    daemon_start(&d, arguments);
    struct wire_request first = daemon_request_long(2);
    struct call running = daemon_call_begin(&d, &first);
    daemon_await_running(&d, 1);
    struct wire_request second = daemon_request(METHOD_RUN);
    struct call queued = daemon_call_begin(&d, &second);
    daemon_await_queued(&d, 1);
    for (int i = 0; i < 50; i++) {
        struct wire_request more = daemon_request(METHOD_RUN);
        struct wire_reply reply = daemon_call(&d, &more);
        expect_status(&reply, STATUS_RESOURCE_EXHAUSTED);
        wire_reply_fini(&reply);
    }
    daemon_signal_rank(&d, 2, 1, SIGKILL);
    struct wire_reply reply = daemon_call_end(&running);
    expect_status(&reply, STATUS_ABORTED);
    wire_reply_fini(&reply);
    reply = daemon_call_end(&queued);
    expect_pass(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static enum status cancel(const struct request_id *id)
{
    struct wire_request request = daemon_request(METHOD_CANCEL);
    request.cancel = *id;
    struct wire_reply reply = daemon_call(&d, &request);
    enum status status = reply.status;
    wire_reply_fini(&reply);
    return status;
}

START_TEST(test_cancel)
{
    daemon_start(&d, NULL);
    struct wire_request first = daemon_request_long(2), second = daemon_request(METHOD_RUN),
                        third = daemon_request(METHOD_RUN);
    struct call running = daemon_call_begin(&d, &first);
    daemon_await_running(&d, 1);
    struct call queued = daemon_call_begin(&d, &second), survivor = daemon_call_begin(&d, &third);
    daemon_await_queued(&d, 2);
    ck_assert_int_eq(cancel(&second.id), STATUS_OK);
    struct wire_reply reply = daemon_call_end(&queued);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    ck_assert_int_eq(cancel(&first.id), STATUS_OK);
    reply = daemon_call_end(&running);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    reply = daemon_call_end(&survivor);
    expect_pass(&reply);
    ck_assert_int_eq(cancel(&first.id), STATUS_NOT_FOUND);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static void suite_add(Suite *suite, const char *name, const TTest *const *tests, int count)
{
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, daemon_setup, daemon_teardown);
    tcase_set_timeout(tcase, 120);
    for (int i = 0; i < count; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
}

int main(void)
{
    Suite *suite = suite_create("daemon");
    const TTest *const cases[] = {test_case_passes,         test_unverified_case_does_not_pass,
                                  test_same_case_same_bits, test_describe_and_status,
                                  test_largest_world,       test_memory_refused,
                                  test_idle_pool_stops,     test_descriptors_run_out};
    const TTest *const ranks[] = {test_rank_killed, test_rank_aborts,
                                  test_rank_stopped_until_deadline, test_pools_leave_nothing};
    const TTest *const queue[] = {test_deadline_in_queue, test_busy_when_full, test_cancel};
    suite_add(suite, "cases", cases, sizeof(cases) / sizeof(cases[0]));
    suite_add(suite, "ranks", ranks, sizeof(ranks) / sizeof(ranks[0]));
    suite_add(suite, "queue", queue, sizeof(queue) / sizeof(queue[0]));
    return runner_run(suite);
}
