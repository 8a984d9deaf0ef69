// SPDX-License-Identifier: Apache-2.0
// Ranks that run as another user than the daemon. Needs root.
#include "tests/support/runner.h"

#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"

// Two user ids. The users need not exist.
#define RANKS  61001
#define DAEMON 61002
#define MS     UINT64_C(1000000)
#define WORLD  2

static void start_odd(void)
{
    const char *const arguments[] = {"--rank-user", "61001", "--rank-program", daemon_odd_rank(),
                                     NULL};
    daemon_start(&d, arguments);
}

static void run(const char *label, uint64_t timeout_ns, enum status status, const char *part)
{
    struct wire_request request = daemon_request_labelled(label, WORLD);
    request.timeout_ns = timeout_ns;
    run_and_expect(&d, &request, status, part);
}

static void expect_line(pid_t pid, const char *expected)
{
    char path[64], line[256], value[256] = "";
    size_t key = strcspn(expected, ":") + 1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, expected, key) == 0)
            snprintf(value, sizeof(value), "%.*s", (int)strcspn(line, "\n"), line);
    fclose(file);
    while (value[0] && value[strlen(value) - 1] == ' ')
        value[strlen(value) - 1] = '\0';
    ck_assert_str_eq(value, expected);
}

static void expect_confined(pid_t pid)
{
    ck_assert_int_gt(pid, 0);
    expect_line(pid, "Uid:\t61001\t61001\t61001\t61001");
    expect_line(pid, "Gid:\t61001\t61001\t61001\t61001");
    expect_line(pid, "Groups:\t");
    expect_line(pid, "CapInh:\t0000000000000000");
    expect_line(pid, "CapPrm:\t0000000000000000");
    expect_line(pid, "CapEff:\t0000000000000000");
    expect_line(pid, "CapAmb:\t0000000000000000");
    expect_line(pid, "NoNewPrivs:\t1");
}

// A whole case with the real ranks.
START_TEST(test_ranks_are_another_user)
{
    static const char *const arguments[] = {"--rank-user", "61001", NULL};
    gid_t groups[] = {0, 61003};
    ck_assert_int_eq(setgroups(2, groups), 0); // groups of the daemon; ranks must have none of them
    daemon_start(&d, arguments);
    run_and_pass(&d, WORLD);
    run_and_pass(&d, 1);
    for (int rank = 0; rank < WORLD; rank++)
        expect_confined(daemon_rank_pid(&d, WORLD, rank));
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_ranks_cannot_get_at_the_daemon)
{
    char secret[128];
    snprintf(secret, sizeof(secret), "/tmp/cpattnd-secret-%d", (int)getpid());
    FILE *file = fopen(secret, "we");
    ck_assert_ptr_nonnull(file);
    fclose(file);
    ck_assert_int_eq(chmod(secret, 0600), 0);
    setenv("NCCL_TEST_SECRET", secret, 1);
    start_odd();
    run("pry", 0, STATUS_OK, "");
    unlink(secret);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// As the daemon's user a rank can do all of that. So the test above can fail.
START_TEST(test_ranks_of_the_same_user_can)
{
    const char *const arguments[] = {"--rank-program", daemon_odd_rank(), NULL};
    daemon_start(&d, arguments);
    run("pry", 0, STATUS_ABORTED, "exited with 31");
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

START_TEST(test_ranks_are_killed)
{
    start_odd();
    run("silent", 300 * MS, STATUS_DEADLINE_EXCEEDED, "time limit of 300 ms passed");
    run_and_pass(&d, WORLD);
    run("stopped", 500 * MS, STATUS_DEADLINE_EXCEEDED, "stopped by a signal");
    run("child", 0, STATUS_ABORTED, "exited with 3");
    run_and_pass(&d, WORLD);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

// Stopped ranks do not see the end of their channels.
START_TEST(test_ranks_die_with_the_daemon)
{
    start_odd();
    run_and_pass(&d, WORLD);
    for (int rank = 0; rank < WORLD; rank++)
        daemon_signal_rank(&d, WORLD, rank, SIGSTOP);
    kill(d.pid, SIGKILL);
    ck_assert_int_eq(daemon_wait(&d), -SIGKILL);
    static const char *const left[] = {"", ".lock", ".fd"};
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s%s", d.socket, left[i]);
        ck_assert_int_eq(unlink(path), 0);
    }
}
END_TEST

// Switches this process to another user, with inheritable capabilities.
static void become(uint32_t rights)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{rights, rights, rights}};
    ck_assert_int_eq(chown(d.folder, DAEMON, DAEMON), 0);
    ck_assert_int_eq(prctl(PR_SET_KEEPCAPS, 1), 0);
    ck_assert_int_eq(setresgid(DAEMON, DAEMON, DAEMON), 0);
    ck_assert_int_eq(setgroups(0, NULL), 0);
    ck_assert_int_eq(setresuid(DAEMON, DAEMON, DAEMON), 0);
    ck_assert_int_eq(syscall(SYS_capset, &header, data), 0);
    for (int right = 0; right < 32; right++)
        if (rights >> right & 1)
            ck_assert_int_eq(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, right, 0, 0), 0);
}

// The daemon is not root and has capabilities from its unit. Ranks must not get them.
START_TEST(test_a_daemon_with_capabilities_alone)
{
    become(1U << CAP_SETUID | 1U << CAP_SETGID | 1U << CAP_KILL);
    start_odd();
    run("pry", 0, STATUS_ABORTED, "exited with 2"); // NCCL_TEST_SECRET is not set
    run_and_pass(&d, WORLD);
    expect_confined(daemon_rank_pid(&d, WORLD, 0));
    run("silent", 300 * MS, STATUS_DEADLINE_EXCEEDED, "time limit of 300 ms passed");
    run_and_pass(&d, WORLD);
    ck_assert_int_eq(daemon_stop(&d), 0);
}
END_TEST

static void expect_refusal(const char *user, const char *program, const char *sentence)
{
    char path[128], text[4096];
    snprintf(path, sizeof(path), "%s/unused", d.folder);
    const char *const arguments[] = {"--socket",       path,    "--rank-user", user,
                                     "--rank-program", program, NULL};
    ck_assert_int_eq(daemon_run(arguments, text, sizeof(text)), 1);
    expect_text(text, sentence);
}

START_TEST(test_a_daemon_without_the_rights)
{
    become(1U << CAP_SETUID | 1U << CAP_SETGID);
    expect_refusal("61001", daemon_odd_rank(),
                   "takes a daemon that is root, or has the capabilities");
    expect_refusal("61002", daemon_odd_rank(), "names the user that the daemon itself runs as");
}
END_TEST

START_TEST(test_a_program_that_the_user_cannot_run)
{
    char program[128], sentence[256];
    snprintf(program, sizeof(program), "%s/rank", d.folder);
    FILE *file = fopen(program, "we");
    ck_assert_ptr_nonnull(file);
    fclose(file);
    ck_assert_int_eq(chmod(program, 0755), 0); // the folder is closed to the user
    snprintf(sentence, sizeof(sentence), "user 61001 cannot execute %s: Permission denied",
             program);
    expect_refusal("61001", program, sentence);
    unlink(program);
}
END_TEST

static bool user_can_run_ranks(void)
{
    char program[4096];
    int status;
    runner_build(program, sizeof(program), "cpattn-rank");
    pid_t pid = fork();
    if (pid == 0)
        _exit(setgid(RANKS) != 0 || setuid(RANKS) != 0 || access(program, X_OK) != 0);
    return waitpid(pid, &status, 0) == pid && status == 0;
}

int main(void)
{
    if (geteuid() != 0 || !user_can_run_ranks()) {
        printf("1..0 # SKIP %s\n", geteuid() != 0
                                       ? "it takes root to make processes of another user"
                                       : "the build tree is closed to other users");
        return 77;
    }
    Suite *suite = suite_create("daemon_rank_user");
    TCase *c = tcase_create("rank_user");
    tcase_add_checked_fixture(c, daemon_setup, daemon_teardown);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, test_ranks_are_another_user);
    tcase_add_test(c, test_ranks_cannot_get_at_the_daemon);
    tcase_add_test(c, test_ranks_of_the_same_user_can);
    tcase_add_test(c, test_ranks_are_killed);
    tcase_add_test(c, test_ranks_die_with_the_daemon);
    tcase_add_test(c, test_a_daemon_with_capabilities_alone);
    tcase_add_test(c, test_a_daemon_without_the_rights);
    tcase_add_test(c, test_a_program_that_the_user_cannot_run);
    suite_add_tcase(suite, c);
    return runner_run(suite);
}
