// SPDX-License-Identifier: Apache-2.0
#include "tests/support/runner.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static void command_read(pid_t pid, char *command, size_t size)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(command, (int)size, file))
        snprintf(command, size, "?");
    if (file)
        fclose(file);
    command[strcspn(command, "\n")] = '\0';
}

static pid_t child_any(void)
{
    FILE *file = fopen("/proc/thread-self/children", "re");
    int pid = 0;
    if (file) {
        if (fscanf(file, "%d", &pid) != 1)
            pid = 0;
        fclose(file);
    }
    return pid;
}

// Waits up to 2 s for the end of a child. False if it is still alive.
static bool ends_by_itself(pid_t pid)
{
    for (int i = 0; i < 200; i++) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG) != 0 || info.si_pid == pid)
            return true;
        usleep(10000);
    }
    return false;
}

// Kills the processes that tests have left, and counts them. Tests run in forked processes; the
// processes that they leave become children of this process. The name is read before the kill,
// because a dead process does not show its name.
static int strays_kill(void)
{
    int strays = 0;
    for (;;) {
        pid_t pid = child_any();
        if (pid == 0)
            return strays;
        if (ends_by_itself(pid))
            continue;
        char command[64];
        command_read(pid, command, sizeof(command));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        printf("# process %d (%s) was left behind\n", (int)pid, command);
        strays++;
    }
}

int runner_run(Suite *suite)
{
    signal(SIGHUP, SIG_DFL); // the caller may ignore it
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    int run = srunner_ntests_run(runner);
    srunner_free(runner);
    int strays = strays_kill();
    return failed == 0 && run > 0 && strays == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

void runner_skip(const char *tests, const char *why)
{
    printf("# SKIP %s: %s\n", tests, why);
    fflush(stdout);
}

static const char *path_join(char *path, size_t size, const char *variable, const char *relative)
{
    const char *top = getenv(variable);
    int length = snprintf(path, size, "%s/%s", top ? top : ".", relative);
    if (length < 0 || (size_t)length >= size)
        abort();
    return path;
}

const char *runner_source(char *path, size_t size, const char *relative)
{
    return path_join(path, size, "top_srcdir", relative);
}

const char *runner_build(char *path, size_t size, const char *relative)
{
    return path_join(path, size, "top_builddir", relative);
}
