// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/node_scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/children.h"
#include "tests/support/port.h"
#include "tests/support/runner.h"

#define ARGUMENTS_MAX 32
#define CHILDREN_MAX  64

static const char *const names[NODES] = {"", "b", "c"};

struct node_scene node_scene;
#define scene node_scene

// Pauses. True until the time limit of the wait.
static bool go_on(int *waited_us)
{
    usleep(PAUSE_US);
    *waited_us += PAUSE_US;
    return *waited_us < PATIENCE_MS * 1000;
}

// ---- the network -------------------------------------------------------------------------------

__attribute__((format(printf, 1, 2))) static bool command(const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return system(text) == 0; // NOLINT(cert-env33-c): with a constant format and own numbers
}

// Starts a process that keeps a network namespace; 0: it cannot.
static pid_t keeper_start(void)
{
    char byte;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET) == 0 && write(ends[1], "", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    close(ends[1]);
    bool kept = read(ends[0], &byte, 1) == 1;
    close(ends[0]);
    return kept ? pid : 0;
}

static bool node_wire(int node)
{
    const char *name = names[node];
    int pid = scene.keepers[node] = keeper_start();
    return pid > 0 && command("ip link add v%s type veth peer name eth0 netns %d", name, pid) &&
           command("ip link set v%s master br0 up", name) &&
           command("nsenter -t %d -n ip link set lo up", pid) &&
           command("nsenter -t %d -n ip address add 10.99.0.%d/24 dev eth0", pid, node + 1) &&
           command("nsenter -t %d -n ip link set eth0 up", pid);
}

// Connects this process, and so the daemon, to the bridge.
static bool network_make(void)
{
    bool made = unshare(CLONE_NEWNET) == 0 && command("ip link set lo up") &&
                command("ip link add br0 address 02:00:00:00:00:01 type bridge") &&
                command("ip address add 10.99.0.1/24 dev br0") && command("ip link set br0 up");
    for (int node = 1; made && node < NODES; node++)
        made = node_wire(node);
    return made;
}

void cable_set(int node, bool whole)
{
    if (!command("ip link set v%s %s", names[node], whole ? "up" : "down"))
        trouble("no cable to %s", names[node]);
}

// ---- processes ---------------------------------------------------------------------------------

static void namespace_enter(pid_t keeper)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)keeper);
    int fd = keeper ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (keeper && (fd < 0 || setns(fd, CLONE_NEWNET) != 0))
        _exit(126);
}

static pid_t node_spawn(int node, const char *name, const char *const *arguments)
{
    char program[4096], log[128];
    runner_build(program, sizeof(program), name);
    snprintf(log, sizeof(log), "%s%s", scene.log, names[node]);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO);
    namespace_enter(scene.keepers[node]);
    close_range(3, ~0U, 0);
    execv(program, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

void daemon_begin(void)
{
    char url[64];
    int waited = 0;
    snprintf(url, sizeof(url), "tcp://%s:%d", scene.address, scene.port);
    const char *const arguments[] = {"cpattnd",     "--socket",
                                     scene.socket,  "--backend",
                                     "cpu",         "--devices",
                                     "2",           "--spares",
                                     "off",         "--rank-program",
                                     scene.wrapper, "--hosts",
                                     "b=2,c=2",     "--agents-token-file",
                                     scene.secret,  "--agents-listen",
                                     url,           NULL};
    scene.processes[0] = node_spawn(0, "cpattnd", arguments);
    while (!raw_open(&scene.client, scene.socket))
        if (!go_on(&waited)) {
            trouble("the daemon does not serve");
            return;
        }
}

// Waits for the end of a process that was killed.
static void node_reap(int node)
{
    int waited = 0, status = 0;
    while (waitpid(scene.processes[node], &status, WNOHANG) == 0)
        if (!go_on(&waited)) {
            trouble("process %d of host %d does not end", (int)scene.processes[node], node);
            return;
        }
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        trouble("process %d of host %d had ended before, with wait status 0x%x",
                (int)scene.processes[node], node, (unsigned)status);
    scene.processes[node] = 0;
}

void daemon_reap(void)
{
    raw_close(&scene.client);
    node_reap(0);
}

void agent_begin(int node)
{
    char url[64];
    snprintf(url, sizeof(url), "tcp://%s:%d", scene.address, scene.port);
    const char *const arguments[] = {
        "cpattn-agent", "--daemon",  url,   "--name",    names[node], "--token-file",
        scene.secret,   "--backend", "cpu", "--devices", "2",         "--rank-program",
        scene.wrapper,  NULL};
    scene.processes[node] = node_spawn(node, "cpattn-agent", arguments);
}

void agent_reap(int node)
{
    node_reap(node);
}

// ---- the log -----------------------------------------------------------------------------------

void log_mark(void)
{
    struct stat stat_of;
    scene.log_begin = stat(scene.log, &stat_of) == 0 ? (long)stat_of.st_size : 0;
}

static int log_count(const char *text)
{
    char line[9000];
    int count = 0;
    FILE *file = fopen(scene.log, "re");
    if (file)
        fseek(file, scene.log_begin, SEEK_SET);
    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    return count;
}

void log_await(const char *text, int count)
{
    int waited = 0;
    while (log_count(text) < count)
        if (!go_on(&waited)) {
            trouble("the daemon has not logged '%s'", text);
            return;
        }
}

// ---- ranks -------------------------------------------------------------------------------------

static bool file_holds(const char *path, const char *text)
{
    static char content[1 << 16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, content, sizeof(content));
    if (fd >= 0)
        close(fd);
    return got > 0 && memmem(content, (size_t)got, text, strlen(text)) != NULL;
}

// The environment of all ranks of this scene, and of no other process, has the path of the orders.
int ranks_anywhere(void)
{
    char path[64];
    int count = 0;
    DIR *folder = opendir("/proc");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(path, sizeof(path), "/proc/%.20s/environ", entry->d_name);
        count +=
            entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && file_holds(path, scene.order);
    }
    if (folder)
        closedir(folder);
    return count;
}

int ranks_on(int node)
{
    pid_t pids[CHILDREN_MAX];
    return children_of(scene.processes[node], pids, CHILDREN_MAX);
}

void ranks_await(int count)
{
    int waited = 0;
    while (ranks_anywhere() != count)
        if (!go_on(&waited)) {
            trouble("%d ranks instead of %d", ranks_anywhere(), count);
            return;
        }
}

// True if the arguments of the process are those of this rank. Each ends with NUL.
static bool rank_is(pid_t pid, int rank)
{
    char path[64], text[4096], wanted[32];
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text));
    if (fd >= 0)
        close(fd);
    int size = snprintf(wanted, sizeof(wanted), "%d%c%d", rank, 0, WORLD) + 1;
    size_t name = got > 0 ? strnlen(text, (size_t)got) + 1 : 0;
    return got > 0 && name + (size_t)size <= (size_t)got &&
           memcmp(text + name, wanted, (size_t)size) == 0;
}

pid_t rank_pid(int rank)
{
    pid_t pids[CHILDREN_MAX];
    int count = children_of(scene.processes[rank / (WORLD / NODES)], pids, CHILDREN_MAX);
    for (int i = 0; i < count; i++)
        if (rank_is(pids[i], rank))
            return pids[i];
    trouble("there is no rank %d", rank);
    return 0;
}

void pools_end(void)
{
    pid_t pids[CHILDREN_MAX];
    for (int node = 0; node < NODES; node++)
        for (int i = children_of(scene.processes[node], pids, CHILDREN_MAX) - 1; i >= 0; i--)
            kill(pids[i], SIGKILL);
    ranks_await(0);
    log_await("pool_kill world=6", 1);
    log_await("pool_kill world=4", 1);
}

// ---- orders ------------------------------------------------------------------------------------

static void file_write(const char *path, const char *text, mode_t mode)
{
    char before[128];
    snprintf(before, sizeof(before), "%s.new", path);
    int fd = open(before, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0 ||
        rename(before, path) != 0)
        abort();
}

void wait_begin(const char *point, int rank)
{
    char text[64];
    file_write(scene.wait, "", 0600);
    snprintf(text, sizeof(text), "%s wait %d", point, rank);
    file_write(scene.order, text, 0600);
}

void wait_await(void)
{
    int waited = 0;
    while (access(scene.order, F_OK) == 0)
        if (!go_on(&waited)) {
            trouble("the rank has not come to the place");
            return;
        }
}

void wait_end(void)
{
    unlink(scene.order);
    unlink(scene.wait);
}

// ---- cases -------------------------------------------------------------------------------------

uint32_t case_send(int world_size, int nodes, int timeout_ms)
{
    uint32_t number = ++scene.last;
    struct cp_case c;
    case_init(&c);
    c.world_size = world_size;
    c.nodes = nodes;
    c.batch = c.heads = c.kv_heads = 1;
    c.head_dim_qk = c.head_dim_v = 16;
    c.seqlen_q = c.seqlen_kv = 96;
    c.seed = number;
    raw_send_run(&scene.client, number, &c, timeout_ms);
    return number;
}

bool answer_take(const char *which, uint32_t number, struct wire_reply *reply)
{
    uint32_t got;
    if (raw_wait(&scene.client, PATIENCE_MS, &got, reply) != RAW_REPLY) {
        trouble("%s: no answer", which);
        return false;
    }
    if (got != number)
        trouble("%s: an answer to request %u instead of %u", which, got, number);
    return true;
}

void case_pass(const char *which, int world_size, int nodes)
{
    struct wire_reply reply;
    if (!answer_take(which, case_send(world_size, nodes, PATIENCE_MS), &reply))
        return;
    if (reply.status != STATUS_OK || reply.result.verdict != VERDICT_PASS)
        trouble("%s: %s: %s", which, status_name(reply.status), reply.message);
    wire_reply_fini(&reply);
}

void cases_pass(const char *which)
{
    case_pass(which, WORLD, NODES);
    if (!trouble_text[0])
        case_pass(which, WORLD - WORLD / NODES, NODES - 1);
}

void nothing_more(void)
{
    struct wire_reply reply;
    uint32_t number = ++scene.last;
    raw_send_status(&scene.client, number);
    if (!answer_take("status", number, &reply))
        return;
    if (reply.pools.queued + reply.pools.running != 0)
        trouble("%d cases queued, %d running in the end", reply.pools.queued, reply.pools.running);
    wire_reply_fini(&reply);
}

static int descriptors_of(int node)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)scene.processes[node]);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

// The sum of all hosts, because the pool of four may be on either agent.
static int descriptors_count(void)
{
    int count = 0;
    for (int node = 0; node < NODES; node++)
        count += descriptors_of(node);
    return count;
}

void baseline_await(void)
{
    int waited = 0;
    while (ranks_anywhere() != RANKS || descriptors_count() != scene.descriptors)
        if (!go_on(&waited)) {
            trouble("%d ranks and %d descriptors instead of %d and %d", ranks_anywhere(),
                    descriptors_count(), RANKS, scene.descriptors);
            return;
        }
}

// ---- life --------------------------------------------------------------------------------------

static void files_make(void)
{
    char program[4096], absolute[4096], text[8192];
    strcpy(scene.folder, "/tmp/cpattnd-test-XXXXXX");
    if (!mkdtemp(scene.folder))
        abort();
    snprintf(scene.socket, sizeof(scene.socket), "%s/socket", scene.folder);
    snprintf(scene.log, sizeof(scene.log), "%s/log", scene.folder);
    snprintf(scene.wrapper, sizeof(scene.wrapper), "%s/faulty_rank", scene.folder);
    snprintf(scene.order, sizeof(scene.order), "%s/order", scene.folder);
    snprintf(scene.wait, sizeof(scene.wait), "%s.wait", scene.order);
    snprintf(scene.secret, sizeof(scene.secret), "%s/secret", scene.folder);
    runner_build(program, sizeof(program), "tests/daemon/faulty_rank");
    if (!realpath(program, absolute))
        abort();
    snprintf(text, sizeof(text), "#!/bin/sh\nCPATTN_FAULT='%s' exec '%s' \"$@\"\n", scene.order,
             absolute);
    file_write(scene.wrapper, text, 0700);
    file_write(scene.secret, "a secret of agents\n", 0600);
}

bool scene_begin(bool cables)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    scene.cables = cables;
    if (cables && !network_make())
        return false;
    files_make();
    strcpy(scene.address, cables ? "10.99.0.1" : "127.0.0.1");
    scene.port = port_free();
    daemon_begin();
    for (int node = 1; node < NODES; node++)
        agent_begin(node);
    log_await("host_back", NODES - 1);
    cases_pass("the first case");
    usleep(500000);
    scene.descriptors = descriptors_count();
    return true;
}

static void log_print(void)
{
    char line[9000], path[128];
    for (int node = 0; node < NODES; node++) {
        snprintf(path, sizeof(path), "%s%s", scene.log, names[node]);
        FILE *file = getenv("CPATTN_TEST_LOG") ? fopen(path, "re") : NULL;
        while (file && fgets(line, sizeof(line), file))
            printf("# %s %s", names[node], line);
        if (file)
            fclose(file);
        unlink(path);
    }
}

// Ends a process by SIGTERM. A process that does not end is killed: an error.
static bool node_end(int node)
{
    int status = -1, waited = 0;
    pid_t pid = scene.processes[node];
    if (pid <= 0 || kill(pid, SIGTERM) != 0)
        return true;
    while (waitpid(pid, &status, WNOHANG) == 0 && go_on(&waited))
        ;
    if (status == -1) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return status == 0;
}

bool scene_end(void)
{
    bool good = true;
    raw_close(&scene.client);
    for (int node = NODES - 1; node >= 0; node--)
        good = node_end(node) && good;
    for (int node = 1; node < NODES; node++)
        if (scene.keepers[node] > 0) {
            kill(scene.keepers[node], SIGKILL);
            waitpid(scene.keepers[node], NULL, 0);
        }
    int waited = 0;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && (pid > 0 || go_on(&waited)))
        ;
    good = good && pid < 0 && ranks_anywhere() == 0;
    log_print();
    unlink(scene.wrapper);
    unlink(scene.secret);
    wait_end();
    return rmdir(scene.folder) == 0 && good;
}
