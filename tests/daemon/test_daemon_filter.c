// SPDX-License-Identifier: Apache-2.0
// Filtered system calls of ranks: real ranks work, and unneeded calls fail.
#include "tests/support/runner.h"

#include <stdio.h>
#include <string.h>

#include "tests/daemon/daemon_scene.h"

#define WORLD 2

static void run(const char *label, enum status status, const char *part)
{
    struct wire_request request = daemon_request_labelled(label, WORLD);
    run_and_expect(&d, &request, status, part);
}

// The number after this word in /proc/PID/status.
static int state_of(pid_t pid, const char *word)
{
    char path[64], line[256];
    int value = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, word, strlen(word)) == 0)
            sscanf(line + strlen(word), ":%d", &value);
    fclose(file);
    return value;
}

START_TEST(real_ranks_are_filtered_and_work)
{
    static const char *const arguments[] = {"--rank-filter", "on", NULL};
    daemon_start(&d, arguments);
    run_and_pass(&d, 1);
    run_and_pass(&d, WORLD);
    for (int rank = 0; rank < WORLD; rank++) {
        pid_t pid = daemon_rank_pid(&d, WORLD, rank);
        ck_assert_int_eq(state_of(pid, "Seccomp_filters"), state_of(d.pid, "Seccomp_filters") + 1);
        ck_assert_int_eq(state_of(pid, "NoNewPrivs"), 1);
    }
    ck_assert(daemon_logged(&d, "rank_filter=on"));
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(unneeded_calls_are_refused)
{
    const char *const arguments[] = {"--rank-filter", "on", "--rank-program", daemon_odd_rank(),
                                     NULL};
    daemon_start(&d, arguments);
    run("calls", STATUS_OK, "");
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Without the filter at least one call does not fail with EPERM. So the test above can fail.
START_TEST(without_a_filter_they_succeed)
{
    const char *const arguments[] = {"--rank-filter", "off", "--rank-program", daemon_odd_rank(),
                                     NULL};
    daemon_start(&d, arguments);
    run("calls", STATUS_ABORTED, "exited with ");
    ck_assert(daemon_logged(&d, "rank_filter=off"));
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("daemon_filter");
    TCase *tcase = tcase_create("filter");
    tcase_add_checked_fixture(tcase, daemon_setup, daemon_teardown);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, real_ranks_are_filtered_and_work);
    tcase_add_test(tcase, unneeded_calls_are_refused);
    tcase_add_test(tcase, without_a_filter_they_succeed);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
