// SPDX-License-Identifier: Apache-2.0
#include "daemon/process/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/process/proc.h"

// Descriptors that a rank may open in addition to those at its start: files, memory and events of
// libraries. The GPU driver opens dozens for each device, NCCL some for each peer and channel.
#define DESCRIPTORS_ROOM     64
#define DESCRIPTORS_ROOM_GPU 4096
// Address space in bytes in addition to the data: programs, stacks, reserved memory.
#define ADDRESSES_ROOM       (INT64_C(1) << 30)
// Processes and threads of the rank-user, which only runs ranks: the same as TasksMax of the
// daemon's unit.
#define THREADS_MAX          4096
// When memory runs out, the kernel kills a rank before the daemon.
#define OOM_SCORE            500
#define OOM_SCORE_ABOVE      250
#define OOM_SCORE_MAX        1000

// Ranks on the CPU have a lower priority, so that the daemon gets a core at once. They do not
// inherit a raised priority of the daemon.
#define NICE_ABOVE 5

#ifdef __SANITIZE_THREAD__
#define THREAD_SANITIZER true
#else
#define THREAD_SANITIZER false
#endif

// The capabilities needed to become another user and to kill its processes.
#define RIGHTS (1U << CAP_SETUID | 1U << CAP_SETGID | 1U << CAP_KILL)

// ---- orders ------------------------------------------------------------------------------------

// Adds a limit. If the daemon's own limit is stricter, it stays.
static void limit_add(struct confine_orders *o, int resource, rlim_t value)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0)
        limit.rlim_cur = limit.rlim_max = RLIM_INFINITY;
    limit.rlim_max = limit.rlim_max < value ? limit.rlim_max : value;
    limit.rlim_cur = limit.rlim_cur < limit.rlim_max ? limit.rlim_cur : limit.rlim_max;
    o->limits[o->limit_count].resource = resource;
    o->limits[o->limit_count++].limit = limit;
}

static int own_oom_score(void)
{
    char text[16] = "";
    int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    return length > 0 ? atoi(text) : 0;
}

static void oom_score_plan(struct confine_orders *o)
{
    int score = own_oom_score() + OOM_SCORE_ABOVE;
    score = score < OOM_SCORE ? OOM_SCORE : score > OOM_SCORE_MAX ? OOM_SCORE_MAX : score;
    snprintf(o->oom_score, sizeof(o->oom_score), "%d", score);
}

void confine_plan(const struct confinement *c, int descriptors, struct confine_orders *orders)
{
    const struct filter *filter = c->is_guest ? &c->guest_filter : &c->filter;
    *orders = (struct confine_orders){.user = c->user.set ? &c->user : NULL,
                                      .filter = filter->count > 0 ? filter : NULL};
    bool free = c->uses_gpus || c->is_guest;
    rlim_t room = free ? DESCRIPTORS_ROOM_GPU : DESCRIPTORS_ROOM;
    limit_add(orders, RLIMIT_CORE, 0);
    limit_add(orders, RLIMIT_NOFILE, (rlim_t)descriptors + room);
    // NCCL's shared memory and the driver's kernel cache are files. A rank on the CPU writes no
    // files; only the thread sanitizer does.
    if (!free && !THREAD_SANITIZER)
        limit_add(orders, RLIMIT_FSIZE, 0);
    if (c->memory_bytes > 0) {
        limit_add(orders, RLIMIT_DATA, (rlim_t)c->memory_bytes);
        limit_add(orders, RLIMIT_AS,
                  (rlim_t)c->memory_bytes + ADDRESSES_ROOM); // includes shared memory
    }
    if (c->user.set)
        limit_add(orders, RLIMIT_NPROC, THREADS_MAX);
    oom_score_plan(orders);
    int own = getpriority(PRIO_PROCESS, 0);
    orders->nice = (own > 0 ? own : 0) + (c->uses_gpus ? 0 : NICE_ABOVE);
}

// ---- in the child ------------------------------------------------------------------------------

bool confine_limits(const struct confine_orders *o)
{
    for (int i = 0; i < o->limit_count; i++)
        if (syscall(SYS_prlimit64, 0, o->limits[i].resource, &o->limits[i].limit, NULL) != 0)
            return false;
    // A failure is not fatal: the kernel may then kill another process first.
    long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return true;
    size_t length = 0;
    while (o->oom_score[length])
        length++;
    syscall(SYS_write, fd, o->oom_score, length);
    syscall(SYS_close, fd);
    return true;
}

void confine_priority(const struct confine_orders *o)
{
    const struct sched_param none = {.sched_priority = 0};
    syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &none); // not the daemon's real-time policy
    syscall(SYS_setpriority, PRIO_PROCESS, 0, o->nice);
}

bool confine_user(const struct rank_user *user)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        none[i].effective = none[i].permitted = none[i].inheritable = 0;
    return syscall(SYS_setgroups, user->group_count, user->groups) == 0 &&
           syscall(SYS_setresgid, user->gid, user->gid, user->gid) == 0 &&
           syscall(SYS_setresuid, user->uid, user->uid, user->uid) == 0 &&
           syscall(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 &&
           syscall(SYS_capset, &header, none) == 0 &&
           syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// ---- checks ------------------------------------------------------------------------------------

// True if the line has four numbers, all equal to `id`: real, effective, saved and file system id.
static bool ids_are(const char *text, unsigned id)
{
    unsigned ids[4];
    return sscanf(text, "%u %u %u %u", &ids[0], &ids[1], &ids[2], &ids[3]) == 4 && ids[0] == id &&
           ids[1] == id && ids[2] == id && ids[3] == id;
}

static bool group_is_meant(const struct rank_user *user, unsigned long group)
{
    for (int i = 0; i < user->group_count; i++)
        if (user->groups[i] == group)
            return true;
    return group == user->gid;
}

static bool groups_are(const char *text, const struct rank_user *user)
{
    char *end;
    for (unsigned long group = strtoul(text, &end, 10); end != text;
         text = end, group = strtoul(text, &end, 10))
        if (!group_is_meant(user, group))
            return false;
    return true;
}

enum status confine_check(const struct rank_user *user, pid_t pid, struct error *error)
{
    static const char *const rights[] = {"CapInh:", "CapPrm:", "CapEff:", "CapAmb:"};
    char text[1024];
    if (!proc_status_line(pid, "Uid:", text, sizeof(text)))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "cannot read the user of the process in /proc; hidepid= and "
                         "ProtectProc= must let the daemon see the processes of rank-user");
    if (!ids_are(text, user->uid))
        return error_set(error, STATUS_FAILED_PRECONDITION, "it runs as the users %s", text);
    if (!proc_status_line(pid, "Gid:", text, sizeof(text)) || !ids_are(text, user->gid))
        return error_set(error, STATUS_FAILED_PRECONDITION, "it runs with the groups %s", text);
    if (!proc_status_line(pid, "Groups:", text, sizeof(text)) || !groups_are(text, user))
        return error_set(error, STATUS_FAILED_PRECONDITION, "it is in the groups %s", text);
    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
        if (!proc_status_line(pid, rights[i], text, sizeof(text)) ||
            strspn(text, "0") != strlen(text))
            return error_set(error, STATUS_FAILED_PRECONDITION, "it has capabilities: %s %s",
                             rights[i], text);
    if (!proc_status_line(pid, "NoNewPrivs:", text, sizeof(text)) || strcmp(text, "1") != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION, "it may gain rights by execve");
    return STATUS_OK;
}

enum status confine_check_rights(const struct rank_user *user, struct error *error)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct held[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (!user->set)
        return STATUS_OK;
    if (user->uid == geteuid() || user->uid == getuid())
        return error_set(
            error, STATUS_PERMISSION_DENIED,
            "--rank-user names the user that the daemon itself runs as; ranks are kept "
            "from the daemon only by a user of their own");
    if (syscall(SYS_capget, &header, held) != 0 || (held[0].effective & RIGHTS) != RIGHTS)
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "--rank-user takes a daemon that is root, or has the capabilities "
                         "CAP_SETUID, CAP_SETGID and CAP_KILL (AmbientCapabilities= of its unit)");
    return STATUS_OK;
}
