// SPDX-License-Identifier: Apache-2.0
#include "tests/client/fake.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/runner.h"

extern char **environ;

void fake_init(struct fake *f)
{
    memset(f, 0, sizeof *f);
    strcpy(f->folder, "/tmp/cpattn-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/socket", f->folder);
}

void fake_start(struct fake *f)
{
    char program[512], ready[6] = "";
    char *argv[] = {runner_build(program, sizeof program, "tests/client/fake_daemon") ? program
                                                                                      : NULL,
                    f->path, NULL};
    int input[2], output[2];
    posix_spawn_file_actions_t actions;
    ck_assert_int_eq(pipe2(input, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(output, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    ck_assert_int_eq(posix_spawn(&f->pid, program, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(input[0]);
    close(output[1]);
    f->end_fd = input[1];
    ck_assert_int_eq(read(output[0], ready, 5), 5);
    ck_assert_str_eq(ready, "ready");
    close(output[0]);
}

void fake_stop(struct fake *f)
{
    if (f->pid == 0)
        return;
    int status;
    kill(f->pid, SIGKILL);
    ck_assert_int_eq(waitpid(f->pid, &status, 0), f->pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                  "the false daemon had ended before, with wait status 0x%x", (unsigned)status);
    close(f->end_fd);
    f->pid = 0;
}

void fake_fini(struct fake *f)
{
    fake_stop(f);
    unlink(f->path);
    rmdir(f->folder);
}

struct cpattn_client *fake_client(const struct fake *f, const struct cpattn_options *options)
{
    struct cpattn_options mine = CPATTN_OPTIONS_INIT;
    struct cpattn_client *client;
    struct cpattn_error error;
    if (options)
        mine = *options;
    mine.socket = f->path;
    enum cpattn_status status = cpattn_client_create(&mine, &client, &error);
    ck_assert_msg(status == CPATTN_OK, "%s", error.text);
    return client;
}

struct cpattn_client *fake_open(struct fake *f)
{
    fake_init(f);
    fake_start(f);
    return fake_client(f, NULL);
}

void fake_close(struct fake *f, struct cpattn_client *client)
{
    cpattn_client_destroy(client);
    fake_fini(f);
}

struct cpattn_case *fake_case(const char *label)
{
    struct cpattn_case *c = cpattn_case_create();
    ck_assert_ptr_nonnull(c);
    ck_assert_int_eq(cpattn_case_set(c, "model", label, NULL), CPATTN_OK);
    return c;
}

enum cpattn_status fake_run(struct cpattn_client *client, const char *label,
                            struct cpattn_result **result, struct cpattn_error *error)
{
    struct cpattn_case *c = fake_case(label);
    *result = (struct cpattn_result *)error; // cpattn_run() must set it, also on failure
    enum cpattn_status status = cpattn_run(client, c, 0, result, error);
    cpattn_case_destroy(c);
    ck_assert_int_eq(status, error->status);
    ck_assert_int_eq(status == CPATTN_OK, error->text[0] == '\0');
    return status;
}

struct cpattn_request *fake_submit(struct cpattn_client *client, const char *label)
{
    struct cpattn_case *c = fake_case(label);
    struct cpattn_request *request;
    struct cpattn_error error;
    enum cpattn_status status = cpattn_submit(client, c, 0, &request, &error);
    ck_assert_msg(status == CPATTN_OK, "%s", error.text);
    cpattn_case_destroy(c);
    return request;
}

enum cpattn_status fake_collect(struct cpattn_request *request, struct cpattn_result **result,
                                struct cpattn_error *error)
{
    enum cpattn_status status = cpattn_collect(request, result, error);
    cpattn_request_destroy(request);
    return status;
}

int fake_runs(struct cpattn_client *client)
{
    struct cpattn_description *description;
    ck_assert_int_eq(cpattn_describe(client, 0, &description, NULL), CPATTN_OK);
    int runs = description->devices;
    cpattn_description_destroy(description);
    return runs;
}

int fake_connections(struct cpattn_client *client)
{
    struct cpattn_description *description;
    ck_assert_int_eq(cpattn_describe(client, 0, &description, NULL), CPATTN_OK);
    int connections = description->queue_max;
    cpattn_description_destroy(description);
    return connections;
}

int fake_held(struct cpattn_client *client)
{
    struct cpattn_daemon_status *status;
    ck_assert_int_eq(cpattn_query_status(client, 0, &status, NULL), CPATTN_OK);
    int held = status->running;
    cpattn_daemon_status_destroy(status);
    return held;
}
