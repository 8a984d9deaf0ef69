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

#include "tests/generate.h"

#define RANKS_SEEN 256
#define PATIENCE_S 60

extern char **environ;

static const struct {
    const char *name;
    int signal; // 0: see soak_process_fault()
} faults[SOAK_FAULTS] = {
    {"SIGKILL of a rank", SIGKILL},         {"SIGABRT of a rank", SIGABRT},
    {"SIGSEGV of a rank", SIGSEGV},         {"SIGTERM of a rank", SIGTERM},
    {"SIGSTOP of a rank", SIGSTOP},         {"SIGSTOP of a rank, SIGCONT of another", SIGCONT},
    {"SIGKILL of every rank", 0},           {"SIGKILL of a rank that has just begun", SIGKILL},
    {"an order to a rank, see the log", 0},
};
#define FAULT_ALL   6
#define FAULT_CONT  5
#define FAULT_ORDER 8

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "soak: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

// ---- life --------------------------------------------------------------------------------------

// The rank program is started through a script that names the file with orders.
static void wrapper_write(struct soak_process *p, const char *faulty_rank)
{
    char *path = realpath(faulty_rank, NULL);
    snprintf(p->wrapper, sizeof(p->wrapper), "%s/rank", p->folder);
    snprintf(p->order, sizeof(p->order), "%s/order", p->folder);
    FILE *file = fopen(p->wrapper, "we");
    if (!path || !file)
        fail(faulty_rank);
    fprintf(file, "#!/bin/sh\nCPATTN_FAULT='%s' exec '%s' \"$@\"\n", p->order, path);
    fclose(file);
    chmod(p->wrapper, 0700);
    free(path);
}

void soak_process_start(struct soak_process *p, const char *program, const char *queue_max,
                        const char *faulty_rank)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    strcpy(p->folder, "/tmp/cpattnd-soak-XXXXXX");
    if (!mkdtemp(p->folder))
        fail(p->folder);
    snprintf(p->socket, sizeof(p->socket), "%s/socket", p->folder);
    snprintf(p->log, sizeof(p->log), "%s/log", p->folder);
    if (faulty_rank)
        wrapper_write(p, faulty_rank);
    const char *const arguments[] = {"cpattnd",
                                     "--socket",
                                     p->socket,
                                     "--backend=cpu",
                                     "--log-level=notice",
                                     "--idle-timeout=20s",
                                     "--queue-max",
                                     queue_max,
                                     faulty_rank ? "--rank-program" : NULL,
                                     p->wrapper,
                                     NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, p->log, O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    if (posix_spawn(&p->pid, program, &actions, NULL, (char *const *)(uintptr_t)arguments,
                    environ) != 0)
        fail(program);
    posix_spawn_file_actions_destroy(&actions);
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

// ---- faults ------------------------------------------------------------------------------------

static int children_list(const struct soak_process *p, pid_t *pids, int max)
{
    char path[96];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)p->pid, (int)p->pid);
    FILE *file = fopen(path, "re");
    while (file && count < max && fscanf(file, "%d", &pids[count]) == 1)
        count++;
    if (file)
        fclose(file);
    return count;
}

const char *soak_fault_name(int kind)
{
    return faults[kind].name;
}

static void order_write(const struct soak_process *p, uint64_t *random)
{
    static const char *const points[] = {"hello",    "ready",    "receipt",   "inputs", "forward",
                                         "exchange", "backward", "reference", "report", "idle"};
    static const char *const kinds[] = {"kill",  "abort",   "exit",  "stop", "spin",
                                        "close", "garbage", "stale", "long", "report",
                                        "flood", "leak",    "hoard", "half"};
    char text[64], temporary[128];
    snprintf(text, sizeof(text), "%s %s %d", points[generate_below(random, 10)],
             kinds[generate_below(random, 14)], (int)generate_below(random, 2));
    snprintf(temporary, sizeof(temporary), "%s.new", p->order);
    FILE *file = fopen(temporary, "we");
    if (!file)
        return;
    fputs(text, file);
    fclose(file);
    rename(temporary, p->order);
}

int soak_process_fault(struct soak_process *p, uint64_t *random)
{
    pid_t ranks[RANKS_SEEN];
    int count = children_list(p, ranks, RANKS_SEEN);
    int kind = (int)generate_below(random, p->order[0] ? SOAK_FAULTS + 6 : FAULT_ORDER);
    if (kind >= FAULT_ORDER) {
        order_write(p, random);
        return FAULT_ORDER;
    }
    if (count == 0)
        return -1;
    // The last has begun last.
    int chosen = kind == FAULT_ALL + 1 ? count - 1 : (int)generate_below(random, count);
    if (kind == FAULT_CONT)
        kill(ranks[generate_below(random, count)], SIGSTOP);
    for (int i = 0; kind == FAULT_ALL && i < count; i++)
        kill(ranks[i], SIGKILL);
    if (kind != FAULT_ALL)
        kill(ranks[chosen], faults[kind].signal);
    return kind;
}

void soak_process_calm(struct soak_process *p)
{
    pid_t ranks[RANKS_SEEN];
    int count = children_list(p, ranks, RANKS_SEEN);
    if (p->order[0])
        unlink(p->order);
    for (int i = 0; i < count; i++)
        kill(ranks[i], SIGCONT);
}

// ---- seen from outside -------------------------------------------------------------------------

static int entries_count(pid_t pid, const char *name)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

void soak_process_sample(const struct soak_process *p, struct soak_sample *sample)
{
    char path[64], line[128];
    pid_t ranks[RANKS_SEEN];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)p->pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file) &&
           sscanf(line, "VmRSS: %ld", &sample->resident_kib) != 1)
        ;
    if (file)
        fclose(file);
    sample->descriptors = entries_count(p->pid, "fd");
    sample->children = children_list(p, ranks, RANKS_SEEN);
}

static int left_behind(const struct soak_process *p)
{
    int status, left = 0;
    pid_t pid = 0;
    for (int i = 0; i < 500 && (pid = waitpid(-1, &status, WNOHANG)) >= 0; i++)
        usleep(pid == 0 ? 10000 : 0);
    left += pid == 0;
    left += access(p->socket, F_OK) == 0;
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        left += strstr(entry->d_name, "cpattn") != NULL;
    if (folder)
        closedir(folder);
    return left;
}

bool soak_process_end(struct soak_process *p, char *text, size_t size)
{
    bool lived = soak_process_alive(p);
    if (lived)
        kill(p->pid, SIGTERM);
    for (int i = 0; soak_process_alive(p) && i < PATIENCE_S * 100; i++)
        usleep(10000);
    if (!p->ended) {
        snprintf(text, size, "it did not end within %d s of SIGTERM", PATIENCE_S);
        return false;
    }
    int left = left_behind(p);
    bool good = lived && WIFEXITED(p->status) && WEXITSTATUS(p->status) == 0 && left == 0;
    snprintf(text, size, "%s, wait status 0x%x, %d things left behind; its log: %s",
             lived ? "on SIGTERM" : "BY ITSELF", (unsigned)p->status, left, p->log);
    return good;
}
