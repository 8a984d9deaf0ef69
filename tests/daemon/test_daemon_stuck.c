// SPDX-License-Identifier: Apache-2.0
// Ranks that do not end when they are killed. A traced rank simulates a rank that a driver holds:
// it is dead, but its tracer does not reap it. The daemon answers in time and continues with the
// other devices. It uses the device again when the rank is released.
#include "tests/support/runner.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"

// Much longer than any wait of a passing test.
#define PATIENCE_US  60000000
#define PAUSE_US     10000
#define MS           UINT64_C(1000000)
// Shorter than the default, longer than any rank here takes to end.
#define KILL_TIMEOUT "2s"

static pid_t tracer;

static void start(const char *rank_program)
{
    static char program[4096];
    runner_build(program, sizeof(program), rank_program);
    // The filter is off, because with it ranks cannot trace each other.
    const char *const arguments[] = {
        "--rank-program", program,         "--devices", "4", "--kill-timeout",
        KILL_TIMEOUT,     "--rank-filter", "off",       NULL};
    daemon_init(&d);
    daemon_start(&d, arguments);
}

static void setup(void)
{
    start("tests/daemon/odd_rank");
}

// ---- the tracer --------------------------------------------------------------------------------

// Starts a child that only traces the process; false if that is not permitted.
static bool trace(pid_t pid)
{
    int ready[2];
    char byte = 1;
    if (pipe(ready) != 0)
        return false;
    tracer = fork();
    if (tracer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        byte = ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0 ? 0 : 1;
        if (write(ready[1], &byte, 1) != 1)
            _exit(9);
        for (;;)
            pause();
    }
    bool told = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    close(ready[1]);
    return told && byte == 0;
}

static void let_go(void)
{
    kill(tracer, SIGKILL);
    waitpid(tracer, NULL, 0);
}

static bool tracing_is_permitted(void)
{
    pid_t victim = fork();
    if (victim == 0) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
        for (;;)
            pause();
    }
    bool permitted = trace(victim);
    let_go();
    kill(victim, SIGKILL);
    waitpid(victim, NULL, 0);
    return permitted;
}

// ---- requests ----------------------------------------------------------------------------------

static struct wire_request labelled(const char *label, int world_size, uint64_t timeout_ns)
{
    struct wire_request request = daemon_request_labelled(label, world_size);
    request.timeout_ns = timeout_ns;
    return request;
}

static void expect_answer(const char *label, int world_size, uint64_t timeout_ns,
                          enum status status, const char *part)
{
    struct wire_request request = labelled(label, world_size, timeout_ns);
    run_and_expect(&d, &request, status, part);
}

// The number of pools in a state; the devices and the failure of the last one.
static int pools_in(enum pool_state state, uint64_t *devices, char *failure)
{
    struct wire_request request = daemon_request(METHOD_STATUS);
    struct wire_reply reply = daemon_call(&d, &request);
    int count = 0;
    for (int i = 0; i < reply.pools.pool_count; i++) {
        const struct wire_pool *pool = &reply.pools.pools[i];
        if (pool->state != state)
            continue;
        count++;
        *devices = pool->devices;
        strcpy(failure, pool->last_failure);
    }
    wire_reply_fini(&reply);
    return count;
}

static void await_stuck(uint64_t devices)
{
    uint64_t found = 0;
    char failure[sizeof(((struct wire_pool *)0)->last_failure)];
    for (int waited = 0; pools_in(POOL_STUCK, &found, failure) == 0; waited += PAUSE_US) {
        ck_assert_int_lt(waited, PATIENCE_US);
        usleep(PAUSE_US);
    }
    ck_assert_uint_eq(found, devices);
    ck_assert(daemon_logged(&d, "pool_stuck"));
}

// The time that the daemon ran or waited for a processor. It shows whether the daemon sleeps, even
// on a busy machine.
static uint64_t awake_ns(void)
{
    char path[64];
    unsigned long long running = 0, waiting = 0;
    snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)d.pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%llu %llu", &running, &waiting), 2);
    fclose(file);
    return running + waiting;
}

// Sets up a killed rank that cannot be reaped: rank 1 of 2, on the second of four devices.
static pid_t hold_rank(void)
{
    run_and_pass(&d, 2);
    pid_t rank = daemon_rank_pid(&d, 2, 1);
    ck_assert(trace(rank));
    expect_answer("silent", 2, 300 * MS, STATUS_DEADLINE_EXCEEDED, "time limit of 300 ms passed");
    return rank;
}

// ---- the tests ---------------------------------------------------------------------------------

START_TEST(test_device_is_lost_and_found)
{
    pid_t rank = hold_rank();
    run_and_pass(&d, 1); // on a free device
    await_stuck(0x2);

    // Two devices side by side are left, and all four are not.
    run_and_pass(&d, 2);
    run_and_pass(&d, 1);
    char part[96];
    snprintf(part, sizeof(part),
             "rank 1 of a pool was killed and does not end (pid %d, state Z, traced", (int)rank);
    expect_answer("", 4, 0, STATUS_UNAVAILABLE, part);
    expect_answer("", 4, 0, STATUS_UNAVAILABLE, "device 1");
    ck_assert(daemon_logged(&d, "state Z, traced by process"));

    let_go();
    for (int waited = 0; kill(rank, 0) == 0; waited += PAUSE_US) { // until it is reaped
        ck_assert_int_lt(waited, PATIENCE_US);
        usleep(PAUSE_US);
    }
    run_and_pass(&d, 4);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_daemon_is_idle)
{
    hold_rank();
    uint64_t before = awake_ns();
    usleep(2000000);
    ck_assert_uint_lt(awake_ns() - before, 1000 * MS);
    let_go();
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// The log names processes that the daemon leaves. They become children of the subreaper.
static void expect_end_without(pid_t rank)
{
    siginfo_t info;
    char text[64];
    kill(d.pid, SIGTERM);
    ck_assert_int_eq(waitid(P_PID, (id_t)d.pid, &info, WEXITED | WNOWAIT), 0);
    snprintf(text, sizeof(text), "pid %d, state Z, traced", (int)rank);
    ck_assert(daemon_logged(&d, "rank_left_behind"));
    ck_assert(daemon_logged(&d, text));
    let_go();
    ck_assert_int_eq(daemon_wait(&d), 0);
}

START_TEST(test_end_before_it_is_known_to_be_stuck)
{
    expect_end_without(hold_rank());
}
END_TEST

START_TEST(test_end_while_stuck)
{
    pid_t rank = hold_rank();
    await_stuck(0x2);
    expect_end_without(rank);
}
END_TEST

// The death of a traced idle rank is detected at once, not by the next case.
START_TEST(test_death_of_a_rank_that_is_traced)
{
    run_and_pass(&d, 2);
    pid_t rank = daemon_rank_pid(&d, 2, 1), sibling = daemon_rank_pid(&d, 2, 0);
    ck_assert(trace(rank));
    kill(rank, SIGKILL);
    for (int waited = 0; kill(sibling, 0) == 0 || !daemon_logged(&d, "rank 1 has ended and cannot "
                                                                     "be reaped");
         waited += PAUSE_US) {
        ck_assert_int_lt(waited, PATIENCE_US);
        usleep(PAUSE_US);
    }
    let_go();
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// A child of the rank traces it, in a session that the kill of the rank's group does not reach. The
// child becomes a child of the daemon, and the daemon kills it. That frees the rank.
START_TEST(test_child_that_traces_its_parent)
{
    expect_answer("traced", 2, 500 * MS, STATUS_DEADLINE_EXCEEDED, "time limit of 500 ms passed");
    run_and_pass(&d, 4);
    for (int waited = 0; daemon_child_count(&d) != 4; waited += PAUSE_US) {
        ck_assert_int_lt(waited, PATIENCE_US);
        usleep(PAUSE_US);
    }
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

int main(void)
{
    if (!tracing_is_permitted()) {
        printf("1..0 # SKIP this system does not let one process trace another\n");
        return 77;
    }
    Suite *suite = suite_create("daemon_stuck");
    TCase *c = tcase_create("stuck");
    tcase_add_checked_fixture(c, setup, daemon_teardown);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, test_device_is_lost_and_found);
    tcase_add_test(c, test_daemon_is_idle);
    tcase_add_test(c, test_end_before_it_is_known_to_be_stuck);
    tcase_add_test(c, test_end_while_stuck);
    tcase_add_test(c, test_death_of_a_rank_that_is_traced);
    tcase_add_test(c, test_child_that_traces_its_parent);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}
