// SPDX-License-Identifier: Apache-2.0
// Limits of a rank that the daemon sets before the rank's first instruction.
#include "tests/support/runner.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"

#define WORLD 2

// Returns a limit; UINT64_MAX: none. The soft and the hard limit must be the same.
static uint64_t limit_of(pid_t pid, const char *name)
{
    char path[64], line[256], soft[32] = "", hard[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0)
            ck_assert_int_eq(sscanf(line + strlen(name), "%31s %31s", soft, hard), 2);
    fclose(file);
    ck_assert_str_eq(soft, hard);
    return strcmp(soft, "unlimited") == 0 ? UINT64_MAX : strtoull(soft, NULL, 10);
}

static int oom_score_of(pid_t pid)
{
    char path[64];
    int score = -1;
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d", &score), 1);
    fclose(file);
    return score;
}

static int nice_of(pid_t pid)
{
    return getpriority(PRIO_PROCESS, (id_t)pid);
}

static int nice_above(int nice)
{
    int above = (nice > 0 ? nice : 0) + 5;
    return above < 19 ? above : 19;
}

static void run(const char *label, enum status status, const char *part)
{
    struct wire_request request = daemon_request_labelled(label, WORLD);
    run_and_expect(&d, &request, status, part);
}

// The odd rank sets itself no limits.
START_TEST(test_limits)
{
    const char *const arguments[] = {"--rank-program", daemon_odd_rank(), NULL};
    daemon_start(&d, arguments);
    run_and_pass(&d, WORLD);
    for (int rank = 0; rank < WORLD; rank++) {
        pid_t pid = daemon_rank_pid(&d, WORLD, rank);
        ck_assert_uint_eq(limit_of(pid, "Max core file size"), 0);
#ifndef __SANITIZE_THREAD__ // the sanitizer writes a file at the start
        ck_assert_uint_eq(limit_of(pid, "Max file size"), 0);
#endif
        ck_assert_uint_eq(limit_of(pid, "Max open files"), 5 + WORLD + 64);
        ck_assert_int_eq(oom_score_of(pid), 500);
        // Less priority than the daemon.
        ck_assert_int_eq(nice_of(pid), nice_above(nice_of(d.pid)));
    }
#ifndef __SANITIZE_THREAD__
    run("file", STATUS_ABORTED, "rank 1 of 2 was killed by signal 25 (SIGXFSZ)");
#endif
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Ranks do not share the daemon's raised priority. Without the right to raise it the test lowers
// it.
START_TEST(test_ranks_do_not_inherit_the_priority)
{
    int own = nice_of(0);
    if (setpriority(PRIO_PROCESS, 0, -7) != 0)
        ck_assert_int_eq(setpriority(PRIO_PROCESS, 0, own + 1), 0);
    daemon_start(&d, NULL);
    run_and_pass(&d, WORLD);
    ck_assert_int_eq(nice_of(d.pid), nice_of(0));
    ck_assert_int_eq(nice_of(daemon_rank_pid(&d, WORLD, 0)), nice_above(nice_of(d.pid)));
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static bool policy_set(int policy)
{
    const struct sched_param with = {.sched_priority = policy == SCHED_RR};
    return sched_setscheduler(0, policy, &with) == 0;
}

// A real-time daemon stays real-time, and its ranks are not.
START_TEST(test_ranks_do_not_inherit_the_policy)
{
    ck_assert(policy_set(SCHED_RR));
    daemon_start(&d, NULL);
    run_and_pass(&d, WORLD);
    ck_assert_int_eq(sched_getscheduler(d.pid), SCHED_RR);
    ck_assert_int_eq(sched_getscheduler(daemon_rank_pid(&d, WORLD, 0)), SCHED_OTHER);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// If memory is short, a rank is killed before the daemon, even if the daemon is not protected.
START_TEST(test_ranks_are_killed_first_without_memory)
{
    FILE *file = fopen("/proc/self/oom_score_adj", "we");
    ck_assert_ptr_nonnull(file);
    fputs("600", file);
    ck_assert_int_eq(fclose(file), 0);
    daemon_start(&d, NULL);
    run_and_pass(&d, WORLD);
    ck_assert_int_eq(oom_score_of(d.pid), 600);
    ck_assert_int_eq(oom_score_of(daemon_rank_pid(&d, WORLD, 0)), 850);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_gpus_have_no_limit_of_memory)
{
    char script[128], path[128], text[4096];
    snprintf(script, sizeof(script), "%s/rank", d.folder);
    snprintf(path, sizeof(path), "%s/unused", d.folder);
    FILE *file = fopen(script, "we");
    ck_assert_ptr_nonnull(file);
    fputs("#!/bin/sh\necho 'device 0 sm_90 143771 MiB NVIDIA H200'\n", file);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(script, 0700), 0);
    const char *const arguments[] = {
        "--socket",      path, "--backend", "cuda", "--cuda-rank-program", script,
        "--rank-memory", "1G", NULL};
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 1);
    expect_text(text, "--rank-memory does not work with the CUDA backend");
    unlink(script);
}
END_TEST

START_TEST(test_values_are_checked)
{
    static const char *const wrong[][2] = {
        {"--rank-memory", "255M"},   {"--rank-memory", "x"}, {"--start-timeout", "0"},
        {"--start-timeout", "soon"}, {"--rank-user", "0"},   {"--rank-user", "root"},
        {"--rank-user", ""},         {"--rank-user", "1,2"}, {"--rank-user", "no such user"}};
    char text[4096], part[64];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *const arguments[] = {wrong[i][0], wrong[i][1], NULL};
        ck_assert_msg(daemon_run(arguments, text, sizeof(text)) == 64, "%s %s", wrong[i][0],
                      wrong[i][1]);
        snprintf(part, sizeof(part), "%s: value '%s': expected", wrong[i][0], wrong[i][1]);
        expect_text(text, part);
    }
}
END_TEST

// The daemon grants more memory than the machine has, and logs that. A machine may get more memory,
// and the memory of a case is an upper bound.
START_TEST(test_missing_memory_is_reported)
{
    static const char *const none[] = {NULL}, *const much[] = {"--memory", "1000000G", NULL};
    daemon_start(&d, none);
    ck_assert(!daemon_logged(&d, "ranks_may_be_killed"));
    ck_assert_int_eq(daemon_stop(&d), 0);
    daemon_start(&d, much);
    ck_assert(daemon_logged(&d, " memory granted_bytes=1073741824000000 there_are_bytes="));
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// The answer comes after five failed starts. The default start timeout would be too long for them.
START_TEST(test_start_that_hangs)
{
    const char *const arguments[] = {"--rank-program", daemon_odd_rank(), "--start-timeout",
                                     "200ms", NULL};
    daemon_start(&d, arguments);
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = 7;
    request.timeout_ns = UINT64_C(30000000000);
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_UNAVAILABLE);
    expect_text(reply.message, "the pool of 7 ranks cannot be started");
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Sanitizers map more memory than any limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
START_TEST(test_memory)
{
    const char *const arguments[] = {"--rank-program", daemon_odd_rank(), "--rank-memory", "256M",
                                     NULL};
    daemon_start(&d, arguments);
    run_and_pass(&d, WORLD);
    pid_t pid = daemon_rank_pid(&d, WORLD, 0);
    ck_assert_uint_eq(limit_of(pid, "Max data size"), UINT64_C(256) << 20);
    ck_assert_uint_eq(limit_of(pid, "Max address space"), UINT64_C(1280) << 20);
    run("memory", STATUS_ABORTED, "rank 1 of 2 exited with 0");

    run_and_pass(&d, WORLD); // the pool is up again
    struct wire_request request = daemon_request(METHOD_RUN);
    strcpy(request.run.model, "hoard");
    request.run.world_size = WORLD;
    request.timeout_ns = UINT64_C(2000000000);
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_DEADLINE_EXCEEDED);
    expect_text(reply.message,
                "rank 1 of 2 was in forward, step 1, with all the memory that a rank "
                "may have (rank-memory)");
    wire_reply_fini(&reply);

    request = daemon_request(METHOD_RUN);
    request.run.world_size = WORLD;
    request.run.heads = request.run.kv_heads = 8;
    request.run.head_dim_qk = request.run.head_dim_v = 128;
    request.run.seqlen_q = request.run.seqlen_kv = 16384;
    reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_RESOURCE_EXHAUSTED);
    expect_text(reply.message, "--rank-memory leaves it 64.0 MiB");
    wire_reply_fini(&reply);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_cases_pass_within_a_limit)
{
    static const char *const arguments[] = {"--rank-memory", "256M", NULL};
    daemon_start(&d, arguments);
    run_and_pass(&d, WORLD);
    run_and_pass(&d, 1);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("daemon_limits");
    TCase *c = tcase_create("limits");
    tcase_add_checked_fixture(c, daemon_setup, daemon_teardown);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, test_limits);
    tcase_add_test(c, test_ranks_do_not_inherit_the_priority);
    if (policy_set(SCHED_RR) && policy_set(SCHED_OTHER))
        tcase_add_test(c, test_ranks_do_not_inherit_the_policy);
    else
        runner_skip("test_ranks_do_not_inherit_the_policy", "no right to a real-time policy");
    tcase_add_test(c, test_ranks_are_killed_first_without_memory);
    tcase_add_test(c, test_gpus_have_no_limit_of_memory);
    tcase_add_test(c, test_values_are_checked);
    tcase_add_test(c, test_missing_memory_is_reported);
    tcase_add_test(c, test_start_that_hangs);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(c, test_memory);
    tcase_add_test(c, test_cases_pass_within_a_limit);
#else
    runner_skip("test_memory, test_cases_pass_within_a_limit", "sanitizers map more memory");
#endif
    suite_add_tcase(suite, c);
    return runner_run(suite);
}
