// SPDX-License-Identifier: Apache-2.0
// The cost of several hosts, which are all this machine, over loopback. Measures the time from the
// death of a local or remote rank to the answer; from the death or silence of an agent to the
// answer; and the start of a pool and a small case of 6 ranks on one, two and three hosts. It runs
// as a test because it uses the fixture of the tests.
//
//     bench_hosts [ROUNDS]
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/nodes/hosts_fixture.h"
#include "tests/support/runner.h"

#define ROUNDS_MAX     1000
#define ROUNDS_DEFAULT 100
#define AGENT_ROUNDS   10
#define SILENT_ROUNDS  3
#define UNDER_WAY_US   100000

static struct hosts h;
static int rounds = ROUNDS_DEFAULT;
static double values[ROUNDS_MAX];

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void tell(const char *what, int count)
{
    qsort(values, (size_t)count, sizeof(values[0]), compare);
    printf("%-44s %4d  %9.2f  %9.2f  %9.2f\n", what, count, values[count / 2],
           values[(count * 99 - 1) / 100], values[count - 1]);
    fflush(stdout);
}

static double ms_since(uint64_t begin_ns)
{
    return (double)(clock_now_ns() - begin_ns) / 1e6;
}

static struct call long_begin(int world_size, int nodes)
{
    const struct wire_request request = hosts_request_long(world_size, nodes);
    struct call call = daemon_call_begin(&h.daemon, &request);
    daemon_await_running(&h.daemon, 1);
    usleep(UNDER_WAY_US);
    return call;
}

static double lost_end(struct call *call, uint64_t begin_ns)
{
    struct wire_reply reply = daemon_call_end(call);
    double ms = ms_since(begin_ns);
    expect_status(&reply, STATUS_ABORTED);
    wire_reply_fini(&reply);
    return ms;
}

static void ranks_kill(int host, const char *what)
{
    for (int i = 0; i < rounds; i++) {
        struct call call = long_begin(2, 2);
        pid_t pid = hosts_rank_pid(&h, host, 2, host);
        ck_assert_int_gt(pid, 0);
        uint64_t begin_ns = clock_now_ns();
        kill(pid, SIGKILL);
        values[i] = lost_end(&call, begin_ns);
    }
    tell(what, rounds);
}

static void agents_end(int number, int count, const char *what)
{
    for (int i = 0; i < count; i++) {
        struct call call = long_begin(6, 3); // on all hosts
        uint64_t begin_ns = clock_now_ns();
        kill(h.agents[1], number);
        values[i] = lost_end(&call, begin_ns);
        if (number == SIGSTOP)
            kill(h.agents[1], SIGCONT);
        hosts_agent_signal(&h, 1, SIGKILL);
        hosts_agent_start(&h, 1);
    }
    tell(what, count);
}

static void pools_start(int nodes, const char *what)
{
    for (int i = 0; i < rounds; i++) {
        const struct wire_request request = hosts_request(6, nodes);
        struct wire_reply reply = daemon_call(&h.daemon, &request);
        expect_status(&reply, STATUS_OK);
        values[i] = (double)reply.result.start_ns / 1e6;
        wire_reply_fini(&reply);
        // A pool that was killed while idle starts again with the next case.
        pid_t pid = 0;
        for (int host = 0; host < HOSTS && pid == 0; host++)
            pid = hosts_rank_pid(&h, host, 6, 0);
        ck_assert_int_gt(pid, 0);
        kill(pid, SIGKILL);
        while (hosts_rank_count(&h, 0) > 0 || hosts_rank_count(&h, 1) > 0 ||
               hosts_rank_count(&h, 2) > 0)
            usleep(2000);
    }
    tell(what, rounds);
}

static void cases_run(int nodes, const char *what)
{
    hosts_run_and_pass(&h, 6, nodes);
    for (int i = 0; i < rounds; i++) {
        const struct wire_request request = hosts_request(6, nodes);
        uint64_t begin_ns = clock_now_ns();
        struct wire_reply reply = daemon_call(&h.daemon, &request);
        values[i] = ms_since(begin_ns);
        expect_pass(&reply);
    }
    tell(what, rounds);
}

// Restarts the daemon and its agents, which ends the pools of the previous measurement.
static void begin(void)
{
    if (h.daemon.pid)
        hosts_stop(&h);
    hosts_start(&h);
    hosts_agent_start(&h, 1);
    hosts_agent_start(&h, 2);
}

START_TEST(measure)
{
    begin();
    printf("%-44s %4s  %9s  %9s  %9s\n", "milliseconds", "n", "p50", "p99", "max");
    cases_run(1, "a small case of 6 ranks on one host");
    cases_run(2, "the same on two");
    cases_run(3, "the same on three");
    begin();
    ranks_kill(0, "SIGKILL of a rank here to the answer");
    ranks_kill(1, "SIGKILL of a rank on another host");
    agents_end(SIGKILL, AGENT_ROUNDS, "SIGKILL of an agent to the answer");
    agents_end(SIGSTOP, SILENT_ROUNDS, "SIGSTOP of an agent to the answer");
    begin();
    pools_start(1, "start of a pool of 6 ranks on one host");
    pools_start(2, "the same on two");
    pools_start(3, "the same on three");
    hosts_stop(&h);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1)
        rounds = atoi(argv[1]);
    if (argc > 2 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_hosts [ROUNDS], 1 to %d\n", ROUNDS_MAX);
        return 64;
    }
    Suite *s = suite_create("bench_hosts");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 3600);
    tcase_add_test(tcase, measure);
    suite_add_tcase(s, tcase);
    return runner_run(s);
}
