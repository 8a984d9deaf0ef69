// SPDX-License-Identifier: Apache-2.0
// The real daemon without a system resource. It reports that, continues to serve, and recovers when
// the resource is available.
#include "tests/support/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/daemon/daemon_scene.h"
#include "tests/support/raw_client.h"

#define PATIENCE_MS 60000

extern char **environ;

// ---- a log that nobody reads -------------------------------------------------------------------

static struct {
    char folder[64], socket[96];
    pid_t pid;
    int log[2];
    struct raw_client client;
} blocked;

static void blocked_start(void)
{
    char program[4096];
    strcpy(blocked.folder, "/tmp/cpattnd-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(blocked.folder));
    snprintf(blocked.socket, sizeof(blocked.socket), "%s/socket", blocked.folder);
    runner_build(program, sizeof(program), "cpattnd");
    const char *const arguments[] = {"cpattnd", "--socket",    blocked.socket, "--backend",
                                     "cpu",     "--log-level", "debug",        NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, blocked.log[1], STDERR_FILENO);
    ck_assert_int_eq(posix_spawn(&blocked.pid, program, &actions, NULL,
                                 (char *const *)(uintptr_t)arguments, environ),
                     0);
    posix_spawn_file_actions_destroy(&actions);
    for (int waited = 0; !raw_open(&blocked.client, blocked.socket); waited += 10) {
        ck_assert_int_lt(waited, PATIENCE_MS);
        usleep(10000);
    }
}

static void blocked_expect(uint32_t number, const struct wire_request *request, enum status status)
{
    struct wire_reply reply;
    uint32_t got;
    raw_send(&blocked.client, number, request);
    ck_assert_int_eq(raw_wait(&blocked.client, PATIENCE_MS, &got, &reply), RAW_REPLY);
    ck_assert_uint_eq(got, number);
    expect_status(&reply, status);
    wire_reply_fini(&reply);
}

// Runs cases that pass and cases that are refused. Each writes lines to the log.
static void blocked_work(void)
{
    for (uint32_t number = 1; number < 20; number++) {
        struct wire_request request = daemon_request(METHOD_RUN);
        blocked_expect(2 * number, &request, STATUS_OK);
        request = daemon_request(METHOD_RUN);
        request.run.heads = 0;
        blocked_expect(2 * number + 1, &request, STATUS_INVALID_ARGUMENT);
    }
}

static void blocked_end(void)
{
    int status;
    raw_close(&blocked.client);
    kill(blocked.pid, SIGTERM);
    ck_assert_int_eq(waitpid(blocked.pid, &status, 0), blocked.pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(rmdir(blocked.folder), 0);
}

static void pipe_fill(int fd)
{
    char bytes[4096];
    int flags = fcntl(fd, F_GETFL);
    memset(bytes, '#', sizeof(bytes));
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    while (write(fd, bytes, sizeof(bytes)) > 0)
        continue;
    while (write(fd, bytes, 1) > 0)
        continue;
    fcntl(fd, F_SETFL, flags);
}

// The log's pipe is full before the first line. When the pipe is read, the log tells the number of
// dropped lines.
START_TEST(test_log_is_not_read)
{
    static char text[1 << 20];
    ck_assert_int_eq(pipe2(blocked.log, O_CLOEXEC), 0);
    pipe_fill(blocked.log[1]);
    blocked_start();
    blocked_work();
    fcntl(blocked.log[0], F_SETFL, O_NONBLOCK);
    while (read(blocked.log[0], text, sizeof(text)) > 0)
        continue;
    blocked_work();
    size_t length = 0;
    blocked_end();
    for (ssize_t got; (got = read(blocked.log[0], text + length, sizeof(text) - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = '\0';
    expect_text(text, "log_dropped lines=");
    expect_text(text, "verdict=pass");
    close(blocked.log[0]);
    close(blocked.log[1]);
}
END_TEST

START_TEST(test_log_is_closed)
{
    ck_assert_int_eq(pipe2(blocked.log, O_CLOEXEC), 0);
    close(blocked.log[0]);
    blocked_start();
    blocked_work();
    blocked_end();
    close(blocked.log[1]);
}
END_TEST

// ---- descriptors -------------------------------------------------------------------------------

static void limit_set(rlim_t soft)
{
    struct rlimit limit;
    ck_assert_int_eq(prlimit(d.pid, RLIMIT_NOFILE, NULL, &limit), 0);
    limit.rlim_cur = soft;
    ck_assert_int_eq(prlimit(d.pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

// Without free descriptors connected clients are served and the running pool works. New clients
// wait in the kernel's queue. A case that needs a new pool is refused with the reason. With
// descriptors everything works again.
START_TEST(test_no_descriptors)
{
    struct rlimit before;
    daemon_init(&d);
    daemon_start(&d, NULL);
    run_and_pass(&d, 2);
    ck_assert_int_eq(prlimit(d.pid, RLIMIT_NOFILE, NULL, &before), 0);
    limit_set((rlim_t)4);
    run_and_pass(&d, 2);
    struct raw_client waiting;
    struct wire_request request = daemon_request(METHOD_STATUS);
    ck_assert(raw_open(&waiting, d.socket));
    raw_send(&waiting, 1, &request);
    request = daemon_request(METHOD_RUN);
    request.run.world_size = 3;
    struct wire_reply reply = daemon_call(&d, &request);
    expect_status(&reply, STATUS_UNAVAILABLE);
    expect_text(reply.message, "Too many open files");
    wire_reply_fini(&reply);
    run_and_pass(&d, 2);
    ck_assert(daemon_logged(&d, "accept error=\"Too many open files\""));

    uint32_t number;
    ck_assert_int_eq(raw_next(&waiting, &number, &reply), RAW_NOTHING);
    limit_set(before.rlim_cur);
    ck_assert_int_eq(raw_wait(&waiting, PATIENCE_MS, &number, &reply), RAW_REPLY);
    expect_status(&reply, STATUS_OK);
    wire_reply_fini(&reply);
    raw_close(&waiting);
    run_and_pass(&d, 4); // the pool of 3 may still pause
    run_and_pass(&d, 2);
    ck_assert_int_eq(daemon_stop(&d), 0);
    daemon_fini(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("environment");
    TCase *tcase = tcase_create("environment");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, test_log_is_not_read);
    tcase_add_test(tcase, test_log_is_closed);
    tcase_add_test(tcase, test_no_descriptors);
    suite_add_tcase(suite, tcase);
    return runner_run(suite);
}
