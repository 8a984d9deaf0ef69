// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/fault_scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/children.h"
#include "tests/support/port.h"
#include "tests/support/runner.h"

#define SECRET "a secret of agents\n"

extern char **environ;

#define FAULT_TEXT(name, text, sentence) text,
const char *const point_names[] = {FAULT_POINT_LIST(FAULT_TEXT)};
const char *const kind_names[] = {FAULT_KIND_LIST(FAULT_TEXT)};

struct scene scene;

bool is_start(enum fault_point point)
{
    return point == FAULT_HELLO || point == FAULT_READY;
}

bool is_hang(enum fault_kind kind)
{
    return kind == FAULT_KIND_STOP || kind == FAULT_KIND_SPIN;
}

bool is_end(enum fault_kind kind)
{
    return kind == FAULT_KIND_KILL || kind == FAULT_KIND_ABORT || kind == FAULT_KIND_EXIT;
}

// ---- the daemon --------------------------------------------------------------------------------

int children_list(pid_t *pids)
{
    int count = children_of(scene.daemon, pids, CHILDREN_MAX);
    return scene.agent ? count + children_of(scene.agent, pids + count, CHILDREN_MAX - count)
                       : count;
}

static int descriptors_of(pid_t pid)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

int descriptors_count(void)
{
    return descriptors_of(scene.daemon) + (scene.agent ? descriptors_of(scene.agent) : 0);
}

void ranks_end(const pid_t *pids, int count)
{
    int left = count;
    for (int i = 0; i < count; i++)
        kill(pids[i], SIGKILL);
    for (int waited = 0; left > 0 && waited < PATIENCE_MS * 1000; waited += PAUSE_US) {
        left = 0;
        for (int i = 0; i < count; i++)
            left += kill(pids[i], 0) == 0;
        usleep(PAUSE_US);
    }
    if (left > 0)
        trouble("ranks that were killed are not reaped");
}

static bool is_asleep(pid_t pid)
{
    char path[64], state = '?';
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = '?';
    if (file)
        fclose(file);
    return state == 'S';
}

void ranks_rest(const pid_t *pids, int count)
{
    int awake = count;
    for (int waited = 0; awake > 0 && waited < PATIENCE_MS * 1000; waited += PAUSE_US) {
        awake = 0;
        for (int i = 0; i < count; i++)
            awake += !is_asleep(pids[i]);
        usleep(PAUSE_US);
    }
    if (awake > 0)
        trouble("ranks that have nothing to do are not asleep");
}

void ranks_kill(void)
{
    pid_t pids[CHILDREN_MAX];
    ranks_end(pids, children_list(pids));
}

static bool is_alive(pid_t pid)
{
    return kill(pid, 0) == 0 && waitpid(pid, NULL, WNOHANG) == 0;
}

void alive_check(void)
{
    if (!is_alive(scene.daemon))
        trouble("the daemon has ended");
    if (scene.agent && !is_alive(scene.agent))
        trouble("the agent has ended");
}

int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    int number = text ? atoi(text) : 0;
    return number > 0 ? number : otherwise;
}

int devices(void)
{
    return number_of("CPATTN_TEST_DEVICES", 2);
}

// With --enable-faults the rank program for GPUs has the points of faults, too.
bool on_gpus(void)
{
    const char *backend = getenv("CPATTN_TEST_BACKEND");
    return backend && strcmp(backend, "cuda") == 0;
}

static void wrapper_write(void)
{
    char program[4096];
    runner_build(program, sizeof(program),
                 on_gpus() ? "cpattn-rank-cuda" : "tests/daemon/faulty_rank");
    if (getenv("CPATTN_TEST_RANK"))
        snprintf(program, sizeof(program), "%s", getenv("CPATTN_TEST_RANK"));
    FILE *file = fopen(scene.wrapper, "we");
    if (!file)
        abort();
    fprintf(file, "#!/bin/sh\nCPATTN_FAULT='%s' exec '%s' \"$@\"\n", scene.order, program);
    fclose(file);
    chmod(scene.wrapper, 0700);
}

// Not with sanitizers: their mappings would count.
static bool limits_memory(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    return !on_gpus();
#endif
}

static pid_t program_spawn(const char *name, const char *log, const char *const *arguments)
{
    char program[4096];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    runner_build(program, sizeof(program), name);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log, O_WRONLY | O_CREAT, 0600);
    if (posix_spawn(&pid, program, &actions, NULL, (char *const *)(uintptr_t)arguments, environ) !=
        0)
        abort();
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static const char *backend_name(void)
{
    return on_gpus() ? "cuda" : "cpu";
}

static void paths_choose(void)
{
    strcpy(scene.folder, "/tmp/cpattnd-test-XXXXXX");
    if (!mkdtemp(scene.folder))
        abort();
    snprintf(scene.socket, sizeof(scene.socket), "%s/socket", scene.folder);
    snprintf(scene.log, sizeof(scene.log), "%s/log", scene.folder);
    snprintf(scene.agent_log, sizeof(scene.agent_log), "%s/agent", scene.folder);
    snprintf(scene.secret, sizeof(scene.secret), "%s/secret", scene.folder);
    snprintf(scene.wrapper, sizeof(scene.wrapper), "%s/rank", scene.folder);
    snprintf(scene.order, sizeof(scene.order), "%s/order", scene.folder);
}

static void daemon_start(const char *const *more)
{
    const char *arguments[24] = {"cpattnd",
                                 "--socket",
                                 scene.socket,
                                 "--devices",
                                 devices() == 1 ? "1" : "2",
                                 "--spares",
                                 scene.spares,
                                 "--backend",
                                 backend_name(),
                                 "--rank-program",
                                 scene.wrapper,
                                 "--cuda-rank-program",
                                 scene.wrapper};
    int count = 13;
    for (int i = 0; more[i]; i++)
        arguments[count++] = more[i];
    if (limits_memory()) {
        arguments[count++] = "--rank-memory";
        arguments[count++] = "256M";
    }
    if (!on_gpus()) { // shorter than the default, and longer than any start of two ranks
        arguments[count++] = "--start-timeout";
        arguments[count++] = "4s";
    }
    scene.daemon = program_spawn("cpattnd", scene.log, arguments);
    for (int waited = 0; waited < PATIENCE_MS * 1000 && !raw_open(&scene.client, scene.socket);
         waited += PAUSE_US)
        usleep(PAUSE_US);
}

// ---- another host ------------------------------------------------------------------------------

static void secret_write(void)
{
    int fd = open(scene.secret, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, SECRET, strlen(SECRET)) != (ssize_t)strlen(SECRET))
        abort();
    close(fd);
}

static bool agent_is_there(void)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen(scene.log, "re");
    while (file && !found && fgets(line, sizeof(line), file))
        found = strstr(line, "host_back ") != NULL;
    if (file)
        fclose(file);
    return found;
}

// A daemon with rank 0 and an agent with rank 1, on the same device. NCCL accepts this because it
// sees two machines.
static void two_hosts_start(void)
{
    char url[64];
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", port_free());
    secret_write();
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_HOSTID", "a", 1);
    const char *const more[] = {"--hosts",    "b=1", "--agents-listen", url, "--agents-token-file",
                                scene.secret, NULL};
    daemon_start(more);
    setenv("NCCL_HOSTID", "b", 1);
    const char *const arguments[] = {"cpattn-agent",
                                     "--daemon",
                                     url,
                                     "--name",
                                     "b",
                                     "--token-file",
                                     scene.secret,
                                     "--devices",
                                     "1",
                                     "--backend",
                                     backend_name(),
                                     "--rank-program",
                                     scene.wrapper,
                                     "--cuda-rank-program",
                                     scene.wrapper,
                                     limits_memory() ? "--rank-memory" : NULL,
                                     "256M",
                                     NULL};
    scene.agent = program_spawn("cpattn-agent", scene.agent_log, arguments);
    for (int waited = 0; waited < PATIENCE_MS * 1000 && !agent_is_there(); waited += PAUSE_US)
        usleep(PAUSE_US);
}

void hosts_start(void)
{
    static const char *const no_more[] = {NULL};
    paths_choose();
    wrapper_write();
    if (devices() == 1)
        two_hosts_start();
    else
        daemon_start(no_more);
}

static int host_end(pid_t pid)
{
    int status = -1;
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    return status;
}

static void log_print(const char *log)
{
    char line[4096];
    FILE *file = getenv("CPATTN_TEST_LOG") ? fopen(log, "re") : NULL;
    while (file && fgets(line, sizeof(line), file))
        printf("# %s", line);
    if (file)
        fclose(file);
}

bool hosts_end(void)
{
    int other;
    pid_t pid = 0;
    raw_close(&scene.client);
    int status = host_end(scene.daemon) | (scene.agent ? host_end(scene.agent) : 0);
    for (int i = 0; i < 500 && (pid = waitpid(-1, &other, WNOHANG)) >= 0; i++)
        usleep(pid == 0 ? 10000 : 0);
    bool socket_left = access(scene.socket, F_OK) == 0;
    log_print(scene.log);
    log_print(scene.agent_log);
    unlink(scene.order);
    unlink(scene.log);
    unlink(scene.agent_log);
    unlink(scene.secret);
    unlink(scene.wrapper);
    bool folder_left = rmdir(scene.folder) != 0;
    if (status == 0 && pid < 0 && !socket_left && !folder_left)
        return true;
    printf("# daemon %d: wait status 0x%x, %s\n", scene.number, (unsigned)status,
           pid >= 0 ? "a process is left" : "socket or lock is left, or all is well");
    return false;
}

// ---- cases -------------------------------------------------------------------------------------

uint32_t case_send(int timeout_ms)
{
    uint32_t number = ++scene.last;
    struct cp_case c;
    case_init(&c);
    c.batch = c.heads = c.kv_heads = 1;
    c.head_dim_qk = c.head_dim_v = 16;
    c.seqlen_q = c.seqlen_kv = 32;
    c.seed = number;
    c.ranks_per_node = devices() == 1;
    raw_send_run(&scene.client, number, &c, timeout_ms);
    return number;
}

// The kind of an answer, a bit of fault_scene.h; 0: none of these kinds.
static int classify(const struct wire_reply *reply)
{
    bool blamed = reply->failure.world_size == 2 && reply->failure.ranks[1].culprit &&
                  !reply->failure.ranks[0].culprit && strstr(reply->message, "rank 1 of 2");
    if (reply->status == STATUS_OK)
        return reply->result.verdict == VERDICT_PASS ? PASSES : 0;
    if (reply->status == STATUS_DEADLINE_EXCEEDED && strstr(reply->message, "was being started"))
        return NOT_STARTED;
    if (reply->status == STATUS_RESOURCE_EXHAUSTED && strstr(reply->message, "rank 1 of 2"))
        return LACKS;
    if (!blamed)
        return reply->status == STATUS_DEADLINE_EXCEEDED ? TOO_EARLY : 0;
    return reply->status == STATUS_ABORTED             ? EXITS
           : reply->status == STATUS_INTERNAL          ? FAILS
           : reply->status == STATUS_DEADLINE_EXCEEDED ? OVERRUNS
                                                       : 0;
}

int answer_take(const char *which, uint32_t number, int allowed, char *message)
{
    struct wire_reply reply;
    uint32_t got;
    if (message)
        message[0] = '\0';
    if (raw_wait(&scene.client, PATIENCE_MS, &got, &reply) != RAW_REPLY) {
        trouble("%s: no answer", which);
        return 0;
    }
    int kind = classify(&reply);
    if (got != number)
        trouble("%s: an answer to request %u instead of %u", which, got, number);
    if (!(kind & allowed))
        trouble("%s: %s: %s", which, status_name(reply.status), reply.message);
    if (message)
        memcpy(message, reply.message, sizeof(reply.message));
    wire_reply_fini(&reply);
    return kind;
}

void warm_up(void)
{
    answer_take("warming up", case_send(PATIENCE_MS), PASSES, NULL);
}

void nothing_more(void)
{
    struct wire_reply reply;
    uint32_t number = ++scene.last, got;
    raw_send_status(&scene.client, number);
    if (raw_wait(&scene.client, PATIENCE_MS, &got, &reply) != RAW_REPLY) {
        trouble("no answer to a status call");
        return;
    }
    if (got != number)
        trouble("request %u is answered twice", got);
    else if (reply.pools.queued + reply.pools.running != 0)
        trouble("%d cases queued, %d running in the end", reply.pools.queued, reply.pools.running);
    wire_reply_fini(&reply);
}

void baseline_await(void)
{
    pid_t pids[CHILDREN_MAX];
    int descriptors = 0, children = 0;
    for (int waited = 0; waited < 20000000; waited += PAUSE_US) {
        descriptors = descriptors_count();
        children = children_list(pids);
        if (descriptors == scene.descriptors && children == scene.children)
            return;
        usleep(PAUSE_US);
    }
    trouble("%d descriptors, %d children; before it were %d and %d", descriptors, children,
            scene.descriptors, scene.children);
}

void order_write(const struct cell *cell)
{
    char path[128];
    snprintf(path, sizeof(path), "%s.new", scene.order);
    FILE *file = fopen(path, "we");
    if (!file)
        abort();
    fprintf(file, "%s %s 1", point_names[cell->point], kind_names[cell->kind]);
    fclose(file);
    rename(path, scene.order);
}

bool order_is_met(void)
{
    return access(scene.order, F_OK) != 0;
}
