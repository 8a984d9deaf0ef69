// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/hosts_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/port.h"
#include "tests/support/runner.h"

#define PATIENCE_MS 60000

static const char *const names[HOSTS] = {"", "b", "c"};

static void secret_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void url_write(const struct hosts *h, int port, char url[64])
{
    snprintf(url, 64, "%s:%d", h->scheme ? h->scheme : "tcp://127.0.0.1", port);
}

// Appends options to the arguments. Returns the new number of arguments.
static int options_add(const char **arguments, int count, const char *const *options)
{
    for (int i = 0; options[i]; i++)
        arguments[count++] = options[i];
    arguments[count] = NULL;
    return count;
}

static void daemon_begin(struct hosts *h)
{
    char url[64];
    url_write(h, h->port, url);
    const char *arguments[8 + HOSTS_OPTIONS_MAX + 1] = {
        "--devices",           "2",     "--hosts", "b=2,c=2", "--agents-listen", url,
        "--agents-token-file", h->token};
    options_add(arguments, 8, h->daemon_options);
    daemon_start(&h->daemon, arguments);
}

void hosts_start(struct hosts *h)
{
    if (h->daemon.folder[0]) { // again, at the same place
        daemon_begin(h);
        return;
    }
    daemon_init(&h->daemon);
    snprintf(h->token, sizeof(h->token), "%s/secret", h->daemon.folder);
    snprintf(h->other_token, sizeof(h->other_token), "%s/other", h->daemon.folder);
    secret_write(h->token, "a secret of agents\n");
    secret_write(h->other_token, "a secret of others\n");
    h->port = port_free();
    daemon_begin(h);
}

// ---- agents ------------------------------------------------------------------------------------

void hosts_agent_spawn(struct hosts *h, int host, int port, const char *token_file)
{
    char program[4096], url[64], log[160];
    ck_assert(runner_build(program, sizeof(program), "cpattn-agent"));
    url_write(h, port, url);
    snprintf(log, sizeof(log), "%s/agent-%s", h->daemon.folder, names[host]);
    const char *arguments[11 + HOSTS_OPTIONS_MAX + 1] = {
        program,    "--daemon",  url,   "--name",    names[host], "--token-file",
        token_file, "--backend", "cpu", "--devices", "2"};
    options_add(arguments, 11, h->agent_options);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        dup2(fd, STDERR_FILENO);
        close_range(3, ~0U, 0);
        execv(program, (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    h->agents[host] = pid;
}

int hosts_lines_count(const char *path, const char *text)
{
    char line[9000];
    int count = 0;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return count;
}

void hosts_await_text(const char *path, const char *text, int count)
{
    for (int waited = 0; hosts_lines_count(path, text) < count; waited += 5) {
        ck_assert_msg(waited < PATIENCE_MS, "'%s' is not %d times in %s", text, count, path);
        usleep(5000);
    }
}

void hosts_await_logged(const struct hosts *h, const char *text, int count)
{
    hosts_await_text(h->daemon.log, text, count);
}

void hosts_agent_start(struct hosts *h, int host)
{
    char text[64];
    snprintf(text, sizeof(text), "host_back host=%s ", names[host]);
    int before = hosts_lines_count(h->daemon.log, text);
    hosts_agent_spawn(h, host, h->port, h->token);
    hosts_await_logged(h, text, before + 1);
}

void hosts_agent_signal(struct hosts *h, int host, int number)
{
    int status;
    ck_assert_int_eq(kill(h->agents[host], number), 0);
    if (number != SIGKILL && number != SIGTERM)
        return;
    ck_assert_int_eq(waitpid(h->agents[host], &status, 0), h->agents[host]);
    if (number == SIGKILL)
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else
        ck_assert_int_eq(status, 0);
    h->agents[host] = 0;
}

static struct daemon as_daemon(const struct hosts *h, int host)
{
    struct daemon d = h->daemon;
    if (host > 0 && host < HOSTS)
        d.pid = h->agents[host];
    return d;
}

int hosts_rank_count(const struct hosts *h, int host)
{
    const struct daemon d = as_daemon(h, host);
    return daemon_rank_count(&d);
}

pid_t hosts_rank_pid(const struct hosts *h, int host, int world_size, int rank)
{
    const struct daemon d = as_daemon(h, host);
    return daemon_rank_pid(&d, world_size, rank);
}

void hosts_signal_rank(const struct hosts *h, int host, int world_size, int rank, int number)
{
    const struct daemon d = as_daemon(h, host);
    daemon_signal_rank(&d, world_size, rank, number);
}

void hosts_stop(struct hosts *h)
{
    char log[160];
    for (int host = 1; host < HOSTS; host++) {
        if (h->agents[host])
            hosts_agent_signal(h, host, SIGTERM);
        snprintf(log, sizeof(log), "%s/agent-%s", h->daemon.folder, names[host]);
        unlink(log);
    }
    if (h->daemon.pid)
        ck_assert_int_eq(daemon_stop(&h->daemon), 0);
    unlink(h->token);
    unlink(h->other_token);
    daemon_fini(&h->daemon);
    memset(h, 0, sizeof(*h));
}

// ---- cases -------------------------------------------------------------------------------------

struct wire_request hosts_request(int world_size, int nodes)
{
    struct wire_request request = daemon_request(METHOD_RUN);
    request.run.world_size = world_size;
    request.run.nodes = nodes;
    return request;
}

struct wire_request hosts_request_long(int world_size, int nodes)
{
    struct wire_request request = daemon_request_long(world_size);
    request.run.nodes = nodes;
    return request;
}

void hosts_run_and_pass(struct hosts *h, int world_size, int nodes)
{
    const struct wire_request request = hosts_request(world_size, nodes);
    struct wire_reply reply = daemon_call(&h->daemon, &request);
    expect_pass(&reply);
}
