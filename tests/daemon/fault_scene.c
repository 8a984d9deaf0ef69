// SPDX-License-Identifier: Apache-2.0
#include "tests/daemon/fault_scene.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/children.h"
#include "tests/support/runner.h"

#define WORKERS 4

extern char **environ;

#define FAULT_TEXT(name, text, sentence) text,
static const char *const point_names[] = {FAULT_POINT_LIST(FAULT_TEXT)};
static const char *const kind_names[] = {FAULT_KIND_LIST(FAULT_TEXT)};

struct scene scene;

void trouble(const char *format, ...)
{
    va_list arguments;
    if (scene.trouble[0])
        return;
    va_start(arguments, format);
    vsnprintf(scene.trouble, sizeof(scene.trouble), format, arguments);
    va_end(arguments);
}

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
    return children_of(scene.daemon, pids, CHILDREN_MAX);
}

int descriptors_count(void)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)scene.daemon);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
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

void alive_check(void)
{
    if (kill(scene.daemon, 0) != 0 || waitpid(scene.daemon, NULL, WNOHANG) != 0)
        trouble("the daemon has ended");
}

// The GPUs' rank program has the points where everything is built with --enable-faults.
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

// What sanitizers map would count.
static bool limits_memory(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    return !on_gpus();
#endif
}

static void daemon_start(void)
{
    char program[4096];
    strcpy(scene.folder, "/tmp/cpattnd-test-XXXXXX");
    if (!mkdtemp(scene.folder))
        abort();
    snprintf(scene.socket, sizeof(scene.socket), "%s/socket", scene.folder);
    snprintf(scene.log, sizeof(scene.log), "%s/log", scene.folder);
    snprintf(scene.wrapper, sizeof(scene.wrapper), "%s/rank", scene.folder);
    snprintf(scene.order, sizeof(scene.order), "%s/order", scene.folder);
    wrapper_write();
    runner_build(program, sizeof(program), "cpattnd");
    const char *const arguments[] = {"cpattnd",
                                     "--socket",
                                     scene.socket,
                                     "--devices",
                                     "2",
                                     "--spares",
                                     scene.spares,
                                     "--backend",
                                     on_gpus() ? "cuda" : "cpu",
                                     "--rank-program",
                                     scene.wrapper,
                                     "--cuda-rank-program",
                                     scene.wrapper,
                                     limits_memory() ? "--rank-memory" : NULL,
                                     "256M",
                                     NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, scene.log, O_WRONLY | O_CREAT, 0600);
    if (posix_spawn(&scene.daemon, program, &actions, NULL, (char *const *)(uintptr_t)arguments,
                    environ) != 0)
        abort();
    posix_spawn_file_actions_destroy(&actions);
    for (int waited = 0; waited < PATIENCE_MS * 1000 && !raw_open(&scene.client, scene.socket);
         waited += PAUSE_US)
        usleep(PAUSE_US);
}

static void log_print(void)
{
    char line[4096];
    FILE *file = getenv("CPATTN_TEST_LOG") ? fopen(scene.log, "re") : NULL;
    while (file && fgets(line, sizeof(line), file))
        printf("# %s", line);
    if (file)
        fclose(file);
}

// SIGTERM; nothing may be left. False, with a line, otherwise.
static bool daemon_end(void)
{
    int status = -1, other;
    pid_t pid = 0;
    raw_close(&scene.client);
    kill(scene.daemon, SIGTERM);
    waitpid(scene.daemon, &status, 0);
    for (int i = 0; i < 500 && (pid = waitpid(-1, &other, WNOHANG)) >= 0; i++)
        usleep(pid == 0 ? 10000 : 0);
    bool socket_left = access(scene.socket, F_OK) == 0;
    log_print();
    unlink(scene.order);
    unlink(scene.log);
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
    raw_send_run(&scene.client, number, &c, timeout_ms);
    return number;
}

// What the answer is, as one of the bits above; 0 for any other.
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

// ---- all cells ---------------------------------------------------------------------------------

static bool cell_report(const struct cells *cells, const struct cell *cell)
{
    char line[1400];
    int length =
        snprintf(line, sizeof(line), "%s - %s%s: %s%s%s\n", scene.trouble[0] ? "not ok" : "ok",
                 cells->prefix, point_names[cell->point], kind_names[cell->kind],
                 scene.trouble[0] ? "\n# " : "", scene.trouble);
    fflush(stdout);
    ssize_t ignored = write(STDOUT_FILENO, line, (size_t)length);
    (void)ignored;
    return scene.trouble[0] == '\0';
}

static int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    int number = text ? atoi(text) : 0;
    return number > 0 ? number : otherwise;
}

static int pairs(void)
{
    int devices = number_of("CPATTN_TEST_DEVICES", 2);
    return devices < 2 ? 1 : devices / 2;
}

static int workers(void)
{
    return number_of("CPATTN_TEST_WORKERS", on_gpus() ? pairs() : WORKERS);
}

// Workers share pairs of devices where there are more of the former.
static void devices_choose(int worker)
{
    char pair[32];
    int first = worker % pairs() * 2;
    snprintf(pair, sizeof(pair), "%d,%d", first, first + 1);
    setenv("CUDA_VISIBLE_DEVICES", pair, 1);
}

// Kinds that take long are dealt evenly when the points run fastest.
static struct cell cell_of(const struct cells *cells, int i)
{
    return (struct cell){cells->points[i % cells->point_count],
                         (enum fault_kind)(i / cells->point_count)};
}

// By "POINT KIND...", where a point may be "any" and no kind stands for all.
static bool chosen(const struct cell *cell, int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "any") != 0 && strcmp(argv[1], point_names[cell->point]) != 0)
        return false;
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], kind_names[cell->kind]) == 0)
            return true;
    return argc < 3;
}

static int worker_run(const struct cells *cells, int number, int argc, char **argv)
{
    pid_t pids[CHILDREN_MAX];
    bool good = true;
    int turn = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    scene.number = number;
    scene.spares = cells->spares;
    if (on_gpus())
        devices_choose(number);
    daemon_start();
    cells->begin();
    usleep(200000);
    scene.descriptors = descriptors_count();
    scene.children = children_list(pids);
    for (int i = 0; i < cells->point_count * FAULT_KINDS; i++) {
        struct cell cell = cell_of(cells, i);
        if (!chosen(&cell, argc, argv) || turn++ % workers() != number)
            continue;
        scene.trouble[0] = '\0';
        cells->run(&cell);
        nothing_more();
        baseline_await();
        alive_check();
        good &= cell_report(cells, &cell);
    }
    return daemon_end() && good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int cells_main(const struct cells *cells, int argc, char **argv)
{
    int count = 0, status;
    bool good = true;
    for (int i = 0; i < cells->point_count * FAULT_KINDS; i++) {
        struct cell cell = cell_of(cells, i);
        count += chosen(&cell, argc, argv);
    }
    printf("1..%d\n", count);
    fflush(stdout);
    for (int number = 0; number < workers(); number++)
        if (fork() == 0)
            exit(worker_run(cells, number, argc, argv));
    while (wait(&status) > 0)
        good &= status == 0;
    return good && count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
