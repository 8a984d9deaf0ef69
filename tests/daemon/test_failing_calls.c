// SPDX-License-Identifier: Apache-2.0
// The real daemon while one system call or one allocation fails: the first of its kind, the second
// and so on (tests/daemon/fail_calls.c). Either the daemon does not start: it reports the reason
// and leaves nothing behind. Or it serves: a refusal has a reason, a client may lose its
// connection, a later case passes, and the daemon ends with status 0. One line of TAP for each kind
// of call.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/raw_client.h"
#include "tests/support/runner.h"
#include "tests/support/trouble.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int main(void)
{
    printf("1..0 # SKIP a sanitizer stands in front of the C library itself\n");
    return 77;
}
#else

#define WORKERS      4
#define PATIENCE_MS  60000
#define ATTEMPTS_MAX 4

extern char **environ;

// Maximum number of tested calls of a kind, and the distance between them. Eight allocations of
// libseccomp suffice: it runs in a separate process, and the daemon only sees its exit status.
// Some failures take a second of CPU time: libseccomp loops until it is killed.
static const struct {
    const char *call;
    int count, apart;
} kinds[] = {{"accept4", 4, 1},   {"socketpair", 4, 1}, {"pipe2", 4, 1},   {"memfd_create", 2, 1},
             {"ftruncate", 2, 1}, {"pidfd_open", 3, 1}, {"clone", 3, 1},   {"recv", 6, 1},
             {"sendmsg", 8, 1},   {"memory", 1000, 1},  {"filter", 8, 110}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static struct {
    char folder[64], socket[96], log[96], mark[96];
    pid_t pid;
    uint32_t last;
} w;

// ---- the daemon --------------------------------------------------------------------------------

static void daemon_start(const char *call, int number)
{
    char program[4096], library[4096], order[64];
    runner_build(program, sizeof(program), "cpattnd");
    runner_build(library, sizeof(library), "tests/daemon/.libs/fail_calls.so");
    snprintf(order, sizeof(order), "%s %d", call, number);
    setenv("LD_PRELOAD", library, 1);
    setenv("CPATTN_FAIL", order, 1);
    setenv("CPATTN_FAIL_FILE", w.mark, 1);
    const char *const arguments[] = {"cpattnd", "--backend", "cpu",    "--devices",
                                     "2",       "--socket",  w.socket, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, w.log, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    if (posix_spawn(&w.pid, program, &actions, NULL, (char *const *)(uintptr_t)arguments,
                    environ) != 0)
        abort();
    posix_spawn_file_actions_destroy(&actions);
    unsetenv("LD_PRELOAD");
}

static bool log_has(const char *text)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen(w.log, "re");
    while (file && !found && fgets(line, sizeof(line), file))
        found = strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return found;
}

// ---- a client ----------------------------------------------------------------------------------

static void request_fill(struct wire_request *request)
{
    memset(request, 0, sizeof(*request));
    request->version = WIRE_VERSION;
    request->method = METHOD_RUN;
    w.last++;
    memcpy(request->id.bytes, &w.last, sizeof(w.last));
    case_init(&request->run);
    request->run.batch = 1;
    request->run.heads = request->run.kv_heads = 1;
    request->run.head_dim_qk = request->run.head_dim_v = 16;
    request->run.seqlen_q = request->run.seqlen_kv = 16;
    request->run.seed = w.last;
}

// Runs a case. True if it passes; false if it does not, or if the connection is lost.
static bool attempt(void)
{
    static struct wire_request request;
    struct raw_client client;
    struct wire_reply reply;
    uint32_t number;
    bool passed = false;
    if (!raw_open(&client, w.socket))
        return false;
    request_fill(&request);
    raw_send(&client, 1, &request);
    enum raw_input input = raw_wait(&client, PATIENCE_MS, &number, &reply);
    if (input == RAW_NOTHING)
        trouble("no answer");
    if (input == RAW_REPLY) {
        passed = reply.status == STATUS_OK && reply.result.verdict == VERDICT_PASS;
        if (reply.status != STATUS_OK && !reply.message[0])
            trouble("%s without a message", status_name(reply.status));
        wire_reply_fini(&reply);
    }
    raw_close(&client);
    return passed;
}

static bool alive(int *status)
{
    return waitpid(w.pid, status, WNOHANG) == 0;
}

// Two cases pass, each within ATTEMPTS_MAX attempts. Then the daemon ends with status 0.
static void serve(void)
{
    int status;
    for (int cases = 0; cases < 2; cases++) {
        int attempts = 0;
        while (!attempt() && ++attempts < ATTEMPTS_MAX)
            usleep(20000);
        if (attempts == ATTEMPTS_MAX)
            trouble("no case passes in %d attempts", ATTEMPTS_MAX);
    }
    kill(w.pid, SIGTERM);
    waitpid(w.pid, &status, 0);
    if (status != 0)
        trouble("it ends with wait status 0x%x", (unsigned)status);
}

static void nothing_left(void)
{
    int status;
    pid_t pid = 0;
    for (int i = 0; i < 500 && (pid = waitpid(-1, &status, WNOHANG)) >= 0; i++)
        usleep(pid == 0 ? 10000 : 0);
    if (pid >= 0)
        trouble("a process is left behind");
    unlink(w.log);
    unlink(w.mark);
    if (rmdir(w.folder) != 0)
        trouble("socket or lock is left behind");
}

// Tests one failure. False if there is no such call.
static bool fail_once(const char *call, int number)
{
    int status = 0;
    bool up = false, lives = true;
    strcpy(w.folder, "/tmp/cpattnd-test-XXXXXX");
    if (!mkdtemp(w.folder))
        abort();
    snprintf(w.socket, sizeof(w.socket), "%s/socket", w.folder);
    snprintf(w.log, sizeof(w.log), "%s/log", w.folder);
    snprintf(w.mark, sizeof(w.mark), "%s/mark", w.folder);
    trouble_forget();
    daemon_start(call, number);
    for (int waited = 0; waited < PATIENCE_MS && !up && (lives = alive(&status)); waited += 2) {
        usleep(2000);
        up = log_has(" ready socket=\"/"); // the socket exists before, even if the start fails
    }
    if (up)
        serve();
    else if (lives)
        trouble("it neither comes up nor ends");
    else if (!WIFEXITED(status) || WEXITSTATUS(status) == 0 || !log_has("cpattnd: "))
        trouble("it ends without a message, wait status 0x%x", (unsigned)status);
    bool met = access(w.mark, F_OK) == 0;
    nothing_left();
    if (trouble_text[0]) {
        printf("# %s %d: %s\n", call, number, trouble_text);
        fflush(stdout);
    }
    return met;
}

// ---- every call --------------------------------------------------------------------------------

// Tests one worker's share of a kind. Returns the number of failed calls, or -1 after a trouble.
static int kind_run(int kind, int worker)
{
    int met = 0;
    for (int n = 1 + worker; n <= kinds[kind].count; n += WORKERS) {
        if (!fail_once(kinds[kind].call, 1 + (n - 1) * kinds[kind].apart))
            return trouble_text[0] ? -1 : met;
        met++;
        if (trouble_text[0])
            return -1;
    }
    return met;
}

static void worker_run(int worker, int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int kind = 0; kind < KINDS; kind++) {
        int result[2] = {kind, kind_run(kind, worker)};
        if (write(out, result, sizeof(result)) != (ssize_t)sizeof(result))
            exit(EXIT_FAILURE);
    }
    exit(EXIT_SUCCESS);
}

int main(void)
{
    int pipe_ends[2], result[2], heard[KINDS] = {0}, met[KINDS] = {0}, status;
    bool good[KINDS], all = true;
    memset(good, 1, sizeof(good));
    printf("1..%d\n", KINDS);
    fflush(stdout);
    if (pipe2(pipe_ends, O_CLOEXEC) != 0)
        return EXIT_FAILURE;
    for (int worker = 0; worker < WORKERS; worker++)
        if (fork() == 0)
            worker_run(worker, pipe_ends[1]);
    close(pipe_ends[1]);
    while (read(pipe_ends[0], result, sizeof(result)) == (ssize_t)sizeof(result)) {
        int kind = result[0];
        good[kind] &= result[1] >= 0;
        met[kind] += result[1] > 0 ? result[1] : 0;
        if (++heard[kind] < WORKERS)
            continue;
        good[kind] &= met[kind] > 0;
        printf("%s - %s fails, %d times\n", good[kind] ? "ok" : "not ok", kinds[kind].call,
               met[kind]);
        fflush(stdout);
        all &= good[kind];
    }
    while (wait(&status) > 0)
        all &= status == 0;
    return all ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
