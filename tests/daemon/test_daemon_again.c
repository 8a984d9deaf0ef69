// SPDX-License-Identifier: Apache-2.0
// A request that is repeated by the same client or another: it does not run again, and every client
// gets the same answer.
#include "tests/support/runner.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"

static void expect_same(const struct wire_reply *a, const struct wire_reply *b)
{
    ck_assert_int_eq(a->status, b->status);
    ck_assert_mem_eq(&a->id, &b->id, sizeof(a->id));
    ck_assert_uint_eq(a->result.digest, b->result.digest);
    ck_assert_uint_eq(a->result.run_ns, b->result.run_ns);
    ck_assert_uint_eq(a->result.total_ns, b->result.total_ns);
}

START_TEST(test_while_it_runs_and_after)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    pid_t rank = daemon_hold(&d, 2);
    struct call first = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    struct call second = daemon_call_begin(&d, &request);
    daemon_release(rank);
    struct wire_reply a = daemon_call_end(&first), b = daemon_call_end(&second);
    expect_status(&a, STATUS_OK);
    expect_same(&a, &b);
    wire_reply_fini(&b);
    b = daemon_call(&d, &request);
    expect_same(&a, &b);
    wire_reply_fini(&a);
    wire_reply_fini(&b);
    ck_assert_uint_eq(daemon_status(&d).admitted, 2); // with that of daemon_hold()
    ck_assert_uint_eq(daemon_status(&d).passed, 2);
}
END_TEST

static int connect_greeted(void)
{
    char greeting[8];
    int fd = daemon_connect(&d);
    ck_assert_int_eq(recv(fd, greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    return fd;
}

// The first client disconnects; the request remains for the other.
START_TEST(test_first_client_goes)
{
    struct wire_request busy = daemon_request_long(2), request = daemon_request(METHOD_RUN);
    struct call running = daemon_call_begin(&d, &busy);
    daemon_await_running(&d, 1);
    int first = connect_greeted(), second = connect_greeted();
    daemon_send(first, 1, &request);
    daemon_await_queued(&d, 1);
    daemon_send(second, 1, &request);
    daemon_ping_fresh(&d); // the daemon has read the request
    close(first);
    daemon_ping_fresh(&d);
    ck_assert_int_eq(daemon_status(&d).queued, 1);
    daemon_signal_rank(&d, 2, 0, SIGKILL);
    struct wire_reply reply = daemon_call_end(&running);
    wire_reply_fini(&reply);
    reply = daemon_receive(second);
    expect_pass(&reply);
    ck_assert_uint_eq(daemon_status(&d).admitted, 2);
    close(second);
}
END_TEST

// A running case continues without its client, which may come back for the answer.
START_TEST(test_client_comes_back)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    pid_t rank = daemon_hold(&d, 2);
    int fd = daemon_connect(&d);
    daemon_send(fd, 1, &request);
    daemon_await_running(&d, 1);
    close(fd);
    struct call again = daemon_call_begin(&d, &request);
    daemon_release(rank);
    struct wire_reply reply = daemon_call_end(&again);
    expect_pass(&reply);
    reply = daemon_call(&d, &request);
    expect_pass(&reply);
    ck_assert_uint_eq(daemon_status(&d).admitted, 2); // with that of daemon_hold()
    ck_assert_uint_eq(daemon_status(&d).passed, 2);
}
END_TEST

// A request dropped from the queue has not run and may be sent again.
START_TEST(test_dropped_is_not_answered)
{
    struct wire_request busy = daemon_request_long(2), request = daemon_request(METHOD_RUN);
    struct call running = daemon_call_begin(&d, &busy);
    daemon_await_running(&d, 1);
    int fd = daemon_connect(&d);
    daemon_send(fd, 1, &request);
    daemon_await_queued(&d, 1);
    close(fd);
    daemon_await_queued(&d, 0);
    struct call again = daemon_call_begin(&d, &request);
    daemon_await_queued(&d, 1);
    daemon_signal_rank(&d, 2, 0, SIGKILL);
    struct wire_reply reply = daemon_call_end(&running);
    wire_reply_fini(&reply);
    reply = daemon_call_end(&again);
    expect_pass(&reply);
}
END_TEST

START_TEST(test_failures_are_answers_too)
{
    struct wire_request request = daemon_request_long(2);
    struct call call = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    daemon_signal_rank(&d, 2, 1, SIGKILL);
    struct wire_reply a = daemon_call_end(&call), b = daemon_call(&d, &request);
    expect_status(&a, STATUS_ABORTED);
    expect_status(&b, STATUS_ABORTED);
    ck_assert_str_eq(a.message, b.message);
    ck_assert_int_eq(b.failure.world_size, 2);
    wire_reply_fini(&a);
    wire_reply_fini(&b);
}
END_TEST

START_TEST(test_id_of_another_case)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    struct wire_reply reply = daemon_call(&d, &request);
    expect_pass(&reply);
    request.run.seed++;
    reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_ALREADY_EXISTS);
    expect_text(reply.message, "another case");
    wire_reply_fini(&reply);
}
END_TEST

// The number of clients that wait for one answer is limited; the next one is refused.
START_TEST(test_too_many_wait_for_one)
{
    struct wire_request request = daemon_request_long(2);
    struct call first = daemon_call_begin(&d, &request);
    daemon_await_running(&d, 1);
    int fds[2] = {daemon_connect(&d), daemon_connect(&d)};
    for (uint32_t i = 0; i < ATTACHED_MAX / 4; i++) // one user's share
        daemon_send(fds[i % 2], i, &request);
    for (int i = 0; i < 2; i++) { // requests of one connection are taken in their order
        struct wire_request status = daemon_request(METHOD_STATUS);
        char greeting[8];
        ck_assert_int_eq(recv(fds[i], greeting, sizeof(greeting), MSG_WAITALL), 8);
        daemon_send(fds[i], ATTACHED_MAX, &status);
        struct wire_reply reply = daemon_receive(fds[i]);
        expect_status(&reply, STATUS_OK);
        wire_reply_fini(&reply);
    }
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_RESOURCE_EXHAUSTED);
    expect_text(reply.message, "one user's share");
    wire_reply_fini(&reply);
    close(fds[0]);
    daemon_ping_fresh(&d);
    struct call second = daemon_call_begin(&d, &request);
    daemon_ping_fresh(&d);
    daemon_signal_rank(&d, 2, 0, SIGKILL);
    reply = daemon_call_end(&first);
    expect_status(&reply, STATUS_ABORTED);
    wire_reply_fini(&reply);
    reply = daemon_call_end(&second);
    expect_status(&reply, STATUS_ABORTED);
    wire_reply_fini(&reply);
    close(fds[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_again");
    TCase *tcase = tcase_create("again");
    tcase_add_checked_fixture(tcase, daemon_setup_started, daemon_teardown_stopped);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_while_it_runs_and_after);
    tcase_add_test(tcase, test_first_client_goes);
    tcase_add_test(tcase, test_client_comes_back);
    tcase_add_test(tcase, test_dropped_is_not_answered);
    tcase_add_test(tcase, test_failures_are_answers_too);
    tcase_add_test(tcase, test_id_of_another_case);
    tcase_add_test(tcase, test_too_many_wait_for_one);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
