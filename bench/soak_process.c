// SPDX-License-Identifier: Apache-2.0
#include "bench/soak_process.h"

#include <dirent.h>
#include <errno.h>
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

#include "tests/support/children.h"
#include "tests/support/generate.h"

#define PATIENCE_S    60
#define ARGUMENTS_MAX 64

extern char **environ;

// The target of a fault: a random rank, a rank that is idle, the youngest rank, all ranks, or the
// process that starts ranks. ORDER: a rank that reads the order file.
enum whom { ONE, IDLE, LAST, ALL, STARTER, ORDER };

static const struct {
    const char *name;
    enum whom whom;
    // other: ONE: sent to a random rank first; IDLE: `signal` goes to all idle ranks; 0: none.
    int signal, other;
} faults[SOAK_FAULTS] = {
    {"SIGKILL of a rank", ONE, SIGKILL, 0},
    {"SIGABRT of a rank", ONE, SIGABRT, 0},
    {"SIGSEGV of a rank", ONE, SIGSEGV, 0},
    {"SIGTERM of a rank", ONE, SIGTERM, 0},
    {"SIGSTOP of a rank", ONE, SIGSTOP, 0},
    {"SIGSTOP of a rank, SIGCONT of another", ONE, SIGCONT, SIGSTOP},
    {"SIGKILL of every rank", ALL, SIGKILL, 0},
    {"SIGKILL of a rank that has just begun", LAST, SIGKILL, 0},
    {"SIGKILL of a rank that stands idle", IDLE, SIGKILL, 0},
    {"SIGSTOP of a rank that stands idle", IDLE, SIGSTOP, 0},
    {"SIGKILL of every rank that stands idle", IDLE, SIGKILL, SIGKILL},
    {"SIGKILL of the starter of ranks", STARTER, SIGKILL, 0},
    {"SIGSTOP of the starter of ranks", STARTER, SIGSTOP, 0},
    {"an order to a rank, see the log", ORDER, 0, 0},
};

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "soak: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

// ---- life --------------------------------------------------------------------------------------

static void file_write(const char *path, const char *text, mode_t mode)
{
    char temporary[128];
    snprintf(temporary, sizeof(temporary), "%s.new", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0 ||
        chmod(temporary, mode) != 0 || rename(temporary, path) != 0)
        fail(path);
}

// Writes a script that starts the rank program with CPATTN_FAULT, the path of the order file.
static void wrapper_write(struct soak_process *p, const char *faulty_rank)
{
    char *path = realpath(faulty_rank, NULL), text[5000];
    if (!path)
        fail(faulty_rank);
    snprintf(p->wrapper, sizeof(p->wrapper), "%s/rank", p->folder);
    snprintf(p->order, sizeof(p->order), "%s/order", p->folder);
    snprintf(text, sizeof(text), "#!/bin/sh\nCPATTN_FAULT='%s' exec '%s' \"$@\"\n", p->order, path);
    file_write(p->wrapper, text, 0700);
    free(path);
}

static int entries_count(const char *path, const char *part)
{
    int count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.' && strstr(entry->d_name, part);
    if (folder)
        closedir(folder);
    return count;
}

static void settings_write(const struct soak_process *p, const char *idle_timeout,
                           int user_queue_max, const char *log_level)
{
    char text[512];
    snprintf(text, sizeof(text), "idle-timeout: %s\nuser-queue-max: %d\nlog-level: %s\n",
             idle_timeout, user_queue_max, log_level);
    file_write(p->settings, text, 0600);
}

static void folder_make(struct soak_process *p)
{
    char temporary[96];
    strcpy(p->folder, "/tmp/cpattnd-soak-XXXXXX");
    if (!mkdtemp(p->folder))
        fail(p->folder);
    snprintf(p->socket, sizeof(p->socket), "%s/socket", p->folder);
    snprintf(p->log, sizeof(p->log), "%s/log", p->folder);
    snprintf(p->settings, sizeof(p->settings), "%s/settings", p->folder);
    snprintf(p->token, sizeof(p->token), "%s/token", p->folder);
    settings_write(p, "20s", 24, "notice");
    file_write(p->token, SOAK_TOKEN "\n", 0600);
    // Temporary files of the daemon and its ranks go here; files_left() counts those that remain.
    snprintf(temporary, sizeof(temporary), "%s/tmp", p->folder);
    if (mkdir(temporary, 0700) != 0 || setenv("TMPDIR", temporary, 1) != 0)
        fail(temporary);
}

static void spawn(struct soak_process *p, const char *program, char *const *arguments)
{
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, p->log, O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    if (posix_spawn(&p->pid, program, &actions, NULL, arguments, environ) != 0)
        fail(program);
    posix_spawn_file_actions_destroy(&actions);
}

void soak_process_start(struct soak_process *p, const struct soak_start *start)
{
    signal(SIGHUP, SIG_DFL); // a daemon that is started with SIGHUP ignored never reloads
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    folder_make(p);
    if (start->faulty_rank)
        wrapper_write(p, start->faulty_rank);
    char url[64];
    p->port = start->port;
    snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", start->port);
    const char *arguments[ARGUMENTS_MAX] = {"cpattnd",        "--socket",      p->socket,
                                            "--config",       p->settings,     "--queue-max",
                                            start->queue_max, "--backend=cpu", NULL};
    int count = 8;
    const char *const ranks[] = {"--rank-program", p->wrapper};
    const char *const network[] = {"--listen", url, "--token-file", p->token};
    for (int i = 0; start->faulty_rank && i < 2; i++)
        arguments[count++] = ranks[i];
    for (int i = 0; start->port > 0 && i < 4; i++)
        arguments[count++] = network[i];
    for (char **option = start->options; *option && count < ARGUMENTS_MAX - 1; option++)
        arguments[count++] = *option;
    p->shm_before = entries_count("/dev/shm", "nccl-");
    spawn(p, start->program, (char *const *)(uintptr_t)arguments);
    for (int i = 0; access(p->socket, F_OK) != 0 && i < PATIENCE_S * 100; i++)
        usleep(10000);
    usleep(300000);
}

bool soak_process_alive(struct soak_process *p)
{
    if (!p->ended && waitpid(p->pid, &p->status, WNOHANG) == p->pid)
        p->ended = true;
    return !p->ended;
}

void soak_process_reload(const struct soak_process *p, const char *idle_timeout, int user_queue_max,
                         const char *log_level)
{
    settings_write(p, idle_timeout, user_queue_max, log_level);
    kill(p->pid, SIGHUP);
}

// ---- faults ------------------------------------------------------------------------------------

const char *soak_fault_name(int kind)
{
    return faults[kind].name;
}

// Processor time of a process in clock ticks; -1: it has ended.
static long process_ticks(pid_t pid)
{
    char path[64];
    long user = -1, system = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    // %*s reads the name, because names of ranks have no spaces.
    if (file && fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user,
                       &system) != 2)
        user = -1;
    if (file)
        fclose(file);
    return user < 0 ? -1 : user + system;
}

// Finds the ranks that used no processor time since the previous call. Returns their number.
static int idle_list(struct soak_process *p, const pid_t *ranks, int count, pid_t *idle)
{
    struct soak_rank now[SOAK_RANKS_SEEN] = {0};
    int idle_count = 0;
    for (int i = 0; i < count; i++) {
        now[i] = (struct soak_rank){ranks[i], process_ticks(ranks[i])};
        for (int k = 0; k < p->seen_count; k++)
            if (p->seen[k].pid == now[i].pid && p->seen[k].ticks == now[i].ticks)
                idle[idle_count++] = ranks[i];
    }
    memcpy(p->seen, now, (size_t)count * sizeof(now[0]));
    p->seen_count = count;
    return idle_count;
}

static void order_write(const struct soak_process *p, uint64_t *random)
{
    static const char *const points[] = {"hello",    "ready",    "receipt",   "inputs", "forward",
                                         "exchange", "backward", "reference", "report", "idle"};
    static const char *const kinds[] = {"kill",  "abort",   "exit",  "stop", "spin",
                                        "close", "garbage", "stale", "long", "report",
                                        "flood", "leak",    "hoard", "half"};
    char text[64];
    snprintf(text, sizeof(text), "%s %s %d", points[generate_below(random, 10)],
             kinds[generate_below(random, 14)], (int)generate_below(random, 2));
    file_write(p->order, text, 0600);
}

int soak_process_fault(struct soak_process *p, uint64_t *random)
{
    pid_t ranks[SOAK_RANKS_SEEN], idle[SOAK_RANKS_SEEN];
    int count = children_of(p->pid, ranks, SOAK_RANKS_SEEN);
    int idle_count = idle_list(p, ranks, count, idle);
    // A third of the faults are orders, if the rank program takes orders.
    int kind = (int)generate_below(random, p->order[0] ? SOAK_FAULTS + 5 : SOAK_FAULTS - 1);
    kind = kind < SOAK_FAULTS ? kind : SOAK_FAULTS - 1;
    const pid_t *chosen = faults[kind].whom == IDLE ? idle : ranks;
    int choice = faults[kind].whom == IDLE ? idle_count : count;
    if (faults[kind].whom == ORDER) {
        order_write(p, random);
        return kind;
    }
    if (faults[kind].whom == STARTER) {
        pid_t starter = children_starter(p->pid);
        return starter > 0 && kill(starter, faults[kind].signal) == 0 ? kind : -1;
    }
    if (choice == 0)
        return -1;
    bool every = faults[kind].whom == ALL || (faults[kind].whom == IDLE && faults[kind].other);
    // Ranks are in order of start: the last is the youngest.
    int one = faults[kind].whom == LAST ? choice - 1 : (int)generate_below(random, choice);
    if (!every && faults[kind].other)
        kill(chosen[generate_below(random, choice)], faults[kind].other);
    for (int i = 0; i < choice; i++)
        if (every || i == one)
            kill(chosen[i], faults[kind].signal);
    return kind;
}

void soak_process_calm(struct soak_process *p)
{
    pid_t ranks[SOAK_RANKS_SEEN];
    int count = children_of(p->pid, ranks, SOAK_RANKS_SEEN);
    if (p->order[0])
        unlink(p->order);
    for (int i = 0; i < count; i++)
        kill(ranks[i], SIGCONT);
}

// ---- seen from outside -------------------------------------------------------------------------

void soak_process_sample(const struct soak_process *p, struct soak_sample *sample)
{
    char path[64], line[128];
    pid_t ranks[SOAK_RANKS_SEEN];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)p->pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "VmRSS: %ld", &sample->resident_kib) != 1)
            sscanf(line, "Threads: %d", &sample->threads);
    if (file)
        fclose(file);
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)p->pid);
    sample->descriptors = entries_count(path, "");
    sample->children = children_of(p->pid, ranks, SOAK_RANKS_SEEN);
}

int soak_process_logged(const struct soak_process *p, const char *text)
{
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    FILE *file = fopen(p->log, "re");
    while (file && getline(&line, &room, file) > 0)
        count += strstr(line, text) != NULL;
    if (file)
        fclose(file);
    free(line);
    return count;
}

// Reaps processes that the daemon left behind, which become children of this subreaper. Returns
// their number; those that do not end within 5 s count as one.
static int processes_left(void)
{
    int status, left = 0;
    for (int i = 0; i < 500; i++) {
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0)
            return left;
        left += pid > 0;
        usleep(pid == 0 ? 10000 : 0);
    }
    return left + 1;
}

// Number of files in the folder that are not the soak's own.
static int folder_left(const struct soak_process *p)
{
    static const char *const ours[] = {"log", "settings", "token", "rank", "tmp"};
    int left = entries_count(p->folder, "");
    char path[128];
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", p->folder, ours[i]);
        left -= access(path, F_OK) == 0;
    }
    return left;
}

static int files_left(const struct soak_process *p, char *text, size_t size)
{
    char temporary[96];
    snprintf(temporary, sizeof(temporary), "%s/tmp", p->folder);
    int in_tmp = entries_count(temporary, "");
    int in_shm = entries_count("/dev/shm", "nccl-") - p->shm_before;
    int here = folder_left(p);
    snprintf(text, size, "%d files beside its log, %d where temporary ones go, %d in /dev/shm",
             here, in_tmp, in_shm);
    return here + in_tmp + (in_shm > 0 ? in_shm : 0);
}

bool soak_process_end(struct soak_process *p, char *text, size_t size)
{
    char files[128];
    bool lived = soak_process_alive(p);
    if (lived)
        kill(p->pid, SIGTERM);
    for (int i = 0; soak_process_alive(p) && i < PATIENCE_S * 100; i++)
        usleep(10000);
    if (!p->ended) {
        snprintf(text, size, "it did not end within %d s of SIGTERM", PATIENCE_S);
        return false;
    }
    int processes = processes_left(), left = files_left(p, files, sizeof(files));
    bool good =
        lived && WIFEXITED(p->status) && WEXITSTATUS(p->status) == 0 && left == 0 && processes == 0;
    snprintf(text, size, "%s, wait status 0x%x; left behind: %d processes, %s",
             lived ? "on SIGTERM" : "BY ITSELF", (unsigned)p->status, processes, files);
    return good;
}
