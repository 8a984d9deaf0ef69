// SPDX-License-Identifier: Apache-2.0
// Latency of a status call, and of the verdict of the smallest verified case on a warm pool of two
// ranks, through libcpattn and a daemon that this program starts. For comparison, the round trip of
// a packet to another process and back. The three measurements alternate, so that the load of the
// machine affects all of them alike.
//
//     bench_roundtrip [PATH OF cpattnd [ROUNDS]]
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/measure.h"
#include "client/cpattn.h"

#define ROUNDS_DEFAULT 2000
#define ROUNDS_WARM    50
#define ROUNDS_MAX     100000
#define CASE_GOAL_US   2000.0
#define STATUS_GOAL_US 200.0

extern char **environ;

struct bench {
    char folder[64], socket[96];
    pid_t daemon;
    struct echo echo;
    struct cpattn_client *client;
    struct cpattn_case *small;
    int rounds;
    double echo_us[ROUNDS_MAX], status_us[ROUNDS_MAX], case_us[ROUNDS_MAX], ranks_us[ROUNDS_MAX];
};

static _Noreturn void fail(const char *what, const char *text)
{
    fprintf(stderr, "bench_roundtrip: %s: %s\n", what, text);
    exit(EXIT_FAILURE);
}

// ---- one round of each ------------------------------------------------------------------------

static double status_once(struct bench *b)
{
    struct cpattn_daemon_status *status;
    struct cpattn_error error;
    double began = measure_now_us();
    if (cpattn_query_status(b->client, 0, &status, &error) != CPATTN_OK)
        fail("status", error.text);
    double us = measure_now_us() - began;
    cpattn_daemon_status_destroy(status);
    return us;
}

static double case_once(struct bench *b, double *ranks_us)
{
    struct cpattn_result *result;
    struct cpattn_error error;
    double began = measure_now_us();
    if (cpattn_run(b->client, b->small, 0, &result, &error) != CPATTN_OK)
        fail("case", error.text);
    double us = measure_now_us() - began;
    if (result->verdict != CPATTN_VERDICT_PASS)
        fail("case", "does not pass");
    *ranks_us = (double)result->run_ns * 1e-3;
    cpattn_result_destroy(result);
    return us;
}

// ---- life -------------------------------------------------------------------------------------

static void daemon_start(struct bench *b, const char *program)
{
    strcpy(b->folder, "/tmp/cpattnd-bench-XXXXXX");
    if (!mkdtemp(b->folder))
        fail(b->folder, "cannot be made");
    snprintf(b->socket, sizeof(b->socket), "%s/socket", b->folder);
    char name[] = "cpattnd", option[] = "--socket", level[] = "--log-level=warning";
    char *const arguments[] = {name, option, b->socket, level, NULL};
    if (posix_spawnp(&b->daemon, program, NULL, NULL, arguments, environ) != 0)
        fail(program, "cannot be started");
}

static void client_start(struct bench *b)
{
    static const char *const smallest[][2] = {
        {"world_size", "2"}, {"batch", "1"},      {"heads", "1"},        {"kv_heads", "1"},
        {"seqlen_q", "16"},  {"seqlen_kv", "16"}, {"head_dim_qk", "16"}, {"head_dim_v", "16"},
    };
    struct cpattn_options options = CPATTN_OPTIONS_INIT;
    struct cpattn_error error;
    options.socket = b->socket;
    double patience_us = measure_now_us() + 10e6;
    while (cpattn_client_create(&options, &b->client, &error) != CPATTN_OK) {
        if (measure_now_us() > patience_us)
            fail("connect", error.text);
        usleep(10000);
    }
    b->small = cpattn_case_create();
    for (size_t i = 0; i < sizeof(smallest) / sizeof(smallest[0]); i++) {
        if (cpattn_case_set(b->small, smallest[i][0], smallest[i][1], &error) != CPATTN_OK)
            fail("case", error.text);
    }
}

static void end(struct bench *b)
{
    cpattn_case_destroy(b->small);
    cpattn_client_destroy(b->client);
    kill(b->daemon, SIGTERM);
    waitpid(b->daemon, NULL, 0);
    echo_end(&b->echo);
    rmdir(b->folder);
}

// ---- figures ----------------------------------------------------------------------------------

static double line(const char *name, double *us, struct bench *b, double goal_us)
{
    double p50 = measure_quantile(us, b->rounds, .5),
           echo = measure_quantile(b->echo_us, b->rounds, .5);
    printf("%-28s %9.1f %9.1f %9.1f", name, p50, measure_quantile(us, b->rounds, .99), p50 / echo);
    if (goal_us > 0)
        printf("   goal p50 <= %.0f: %s", goal_us, p50 <= goal_us ? "met" : "MISSED");
    printf("\n");
    return p50;
}

int main(int argc, char **argv)
{
    static struct bench b;
    b.rounds = argc > 2 ? atoi(argv[2]) : ROUNDS_DEFAULT;
    if (b.rounds < 1 || b.rounds > ROUNDS_MAX)
        fail("rounds", "1 to 100000");
    if (!echo_start(&b.echo)) // forks: before the library has threads
        fail("echo", "cannot be started");
    daemon_start(&b, argc > 1 ? argv[1] : "./cpattnd");
    client_start(&b);
    for (int i = -ROUNDS_WARM; i < b.rounds; i++) {
        double ranks_us, us[3] = {echo_once(&b.echo), status_once(&b), case_once(&b, &ranks_us)};
        if (us[0] < 0)
            fail("echo", "lost");
        if (i < 0)
            continue;
        b.echo_us[i] = us[0];
        b.status_us[i] = us[1];
        b.case_us[i] = us[2];
        b.ranks_us[i] = ranks_us;
    }
    end(&b);
    printf("%-28s %9s %9s %9s\n", "microseconds", "p50", "p99", "x echo");
    line("echo, 200 bytes", b.echo_us, &b, 0);
    double status_us = line("status", b.status_us, &b, STATUS_GOAL_US);
    double case_us = line("smallest case, 2 ranks", b.case_us, &b, CASE_GOAL_US);
    line("  of that, ranks at work", b.ranks_us, &b, 0);
    return status_us <= STATUS_GOAL_US && case_us <= CASE_GOAL_US ? EXIT_SUCCESS : EXIT_FAILURE;
}
