// SPDX-License-Identifier: Apache-2.0
// The start of a wide pool while the creation of processes is slow. The daemon serves meanwhile. It
// handles faults before the last rank exists.
#include "tests/support/runner.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"
#include "tests/support/children.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    printf("1..0 # SKIP a sanitizer stands in front of the C library itself\n");
    return 77;
}
#else

// Wide enough for faults at any rank, and narrow enough for many starts.
#define WORLD 16
// Microseconds of each clone. One iteration of the loop then starts one rank.
#define SLOW  "6000"

static void start(const char *fails)
{
    char library[4096];
    daemon_init(&d);
    ck_assert(runner_build(library, sizeof(library), "tests/daemon/.libs/fail_calls.so"));
    setenv("LD_PRELOAD", library, 1);
    setenv("CPATTN_SLOW_CLONE", SLOW, 1);
    if (fails)
        setenv("CPATTN_FAIL", fails, 1);
    const char *const arguments[] = {"--devices", "2", NULL};
    daemon_start(&d, arguments);
    unsetenv("LD_PRELOAD");
}

// Sends a signal to the starter, which must exist. Returns its process.
static pid_t starter_signal(int number)
{
    pid_t starter = children_starter(d.pid);
    ck_assert_int_gt(starter, 0);
    ck_assert_int_eq(kill(starter, number), 0);
    return starter;
}

static struct wire_request request_wide(int world_size)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = world_size;
    return request;
}

// The state of the pool; 0: no pool. The answer also shows that the daemon serves.
static enum pool_state state(void)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_OK);
    enum pool_state state = reply.pools.pool_count > 0 ? reply.pools.pools[0].state : 0;
    wire_reply_fini(&reply);
    return state;
}

static void await_ranks(int count)
{
    while (daemon_rank_count(&d) < count)
        usleep(500);
}

START_TEST(test_daemon_serves_during_a_start)
{
    start(NULL);
    struct wire_request request = request_wide(WORLD_SIZE_MAX);
    struct call call = daemon_call_begin(&d, &request);
    await_ranks(2);
    int answered = 0;
    while (daemon_rank_count(&d) < WORLD_SIZE_MAX && state() == POOL_STARTING)
        answered++;
    ck_assert_int_ge(answered, 8);
    struct wire_reply reply = daemon_call_end(&call);
    expect_pass(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_a_rank_in_the_middle_cannot_be_created)
{
    start("clone 10");
    struct wire_request request = request_wide(WORLD);
    struct wire_reply reply = daemon_call(&d, &request); // the second attempt
    expect_pass(&reply);
    ck_assert(daemon_logged(&d, "pool_start_failed world=16"));
    ck_assert(daemon_logged(&d, "of 16 is not started: cannot make a process"));
    ck_assert(!daemon_logged(&d, "pool_stuck"));
    ck_assert_int_eq(daemon_rank_count(&d), WORLD);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_a_rank_dies_before_the_last_is_created)
{
    start(NULL);
    struct wire_request request = request_wide(WORLD);
    struct call call = daemon_call_begin(&d, &request);
    await_ranks(2);
    daemon_signal_rank(&d, WORLD, 0, SIGKILL);
    struct wire_reply reply = daemon_call_end(&call);
    expect_pass(&reply);
    ck_assert(daemon_logged(&d, "pool_kill world=16"));
    ck_assert(!daemon_logged(&d, "pool_stuck"));
    ck_assert_int_eq(daemon_rank_count(&d), WORLD);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_the_daemon_ends_before_the_last_is_created)
{
    start(NULL);
    struct wire_request request = request_wide(WORLD), cancel = daemon_request(METHOD_CANCEL);
    struct call call = daemon_call_begin(&d, &request);
    await_ranks(2);
    cancel.cancel = request.id;
    struct wire_reply reply = daemon_call(&d, &cancel);
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
    reply = daemon_call_end(&call);
    expect_status(&reply, STATUS_CANCELLED);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
    ck_assert(!daemon_logged(&d, "pool_ready"));
    ck_assert(!daemon_logged(&d, "pool_stuck"));
}
END_TEST

static void input_read(char target[64])
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/0", (int)d.pid);
    ssize_t length = readlink(path, target, 63);
    ck_assert_int_gt(length, 0);
    target[length] = '\0';
}

// While the starter is stopped, the daemon serves and answers at deadlines.
START_TEST(test_a_starter_that_stops_for_a_while)
{
    char before[64], after[64];
    start(NULL);
    input_read(before);
    starter_signal(SIGSTOP);
    struct wire_request request = request_wide(WORLD);
    request.timeout_ns = 500 * UINT64_C(1000000);
    struct wire_reply late = daemon_call(&d, &request);
    expect_status(&late, STATUS_DEADLINE_EXCEEDED);
    wire_reply_fini(&late);
    input_read(after);
    ck_assert_str_eq(after, before);
    request = request_wide(WORLD);
    struct call call = daemon_call_begin(&d, &request);
    while (state() != POOL_STARTING)
        usleep(500);
    ck_assert_int_eq(daemon_rank_count(&d), 0);
    daemon_ping_fresh(&d);
    starter_signal(SIGCONT);
    struct wire_reply reply = daemon_call_end(&call);
    expect_pass(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// A stopped starter is replaced, and the new one starts the ranks.
START_TEST(test_a_starter_that_stops_for_good)
{
    start(NULL);
    pid_t first = starter_signal(SIGSTOP);
    struct wire_request request = request_wide(WORLD);
    struct wire_reply reply = daemon_call(&d, &request);
    expect_pass(&reply);
    ck_assert(daemon_logged(&d, "reason=\"does not answer\""));
    ck_assert_int_ne(children_starter(d.pid), first);
    ck_assert_int_ne(kill(first, 0), 0);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// No rank is left after a cancelled start. A rank that was ordered is killed when it starts.
START_TEST(test_a_start_is_cancelled_before_its_first_rank)
{
    start(NULL);
    starter_signal(SIGSTOP);
    struct wire_request request = request_wide(WORLD);
    struct call call = daemon_call_begin(&d, &request);
    while (state() != POOL_STARTING)
        usleep(500);
    kill(d.pid, SIGTERM);
    while (!daemon_status(&d).draining)
        usleep(500);
    kill(d.pid, SIGTERM);
    while (!daemon_logged(&d, "pool_kill"))
        usleep(500);
    starter_signal(SIGCONT);
    struct wire_reply reply = daemon_call_end(&call);
    expect_status(&reply, STATUS_UNAVAILABLE);
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_wait(&d), 1);
}
END_TEST

START_TEST(test_the_starter_dies)
{
    start(NULL);
    starter_signal(SIGKILL); // while it is idle
    run_and_pass(&d, 2);
    ck_assert(daemon_logged(&d, "starter_lost"));
    starter_signal(SIGSTOP);
    struct wire_request request = request_wide(WORLD);
    struct call call = daemon_call_begin(&d, &request);
    while (!daemon_logged(&d, "pool_start implementation=cpattn world=16"))
        usleep(500);
    struct wire_request status = daemon_request(METHOD_STATUS);
    struct wire_reply answered = daemon_call(&d, &status); // the first order has been sent
    wire_reply_fini(&answered);
    starter_signal(SIGKILL); // while it has an order
    struct wire_reply reply = daemon_call_end(&call);
    expect_pass(&reply);
    ck_assert(daemon_logged(&d, "pool_start_failed world=16"));
    ck_assert(daemon_logged(&d, "the process that starts ranks has ended"));
    while (daemon_child_count(&d) != WORLD + 2) // no unknown child remains
        usleep(500);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon start");
    TCase *tcase = tcase_create("wide");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, daemon_teardown);
    tcase_add_test(tcase, test_daemon_serves_during_a_start);
    tcase_add_test(tcase, test_a_rank_in_the_middle_cannot_be_created);
    tcase_add_test(tcase, test_a_rank_dies_before_the_last_is_created);
    tcase_add_test(tcase, test_the_daemon_ends_before_the_last_is_created);
    tcase_add_test(tcase, test_a_starter_that_stops_for_a_while);
    tcase_add_test(tcase, test_a_starter_that_stops_for_good);
    tcase_add_test(tcase, test_a_start_is_cancelled_before_its_first_rank);
    tcase_add_test(tcase, test_the_starter_dies);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}

#endif
