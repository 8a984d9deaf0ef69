// SPDX-License-Identifier: Apache-2.0
#include "daemon/machine/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/log.h"

// A sandbox may hide /proc/meminfo.
#define MEMORY_FALLBACK_BYTES (INT64_C(1) << 30)
#define CGROUP_PATH_MAX       4096
// The shortest time slice that the scheduler grants.
#define TURN_NS               UINT64_C(100000)
#define CLOSE_CLOEXEC         4 // CLOSE_RANGE_CLOEXEC of newer headers
#define RESET_ON_FORK         1 // SCHED_FLAG_RESET_ON_FORK; linux/sched.h clashes with sched.h

int host_cores(void)
{
    cpu_set_t set;
    // Fails on machines with more cores than a cpu_set_t can hold.
    bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
    long cores = known ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > DEVICES_MAX ? DEVICES_MAX : (int)cores;
}

// Returns the number after `key` in the first line that begins with it; -1: there is none.
static int64_t file_number(const char *path, const char *key)
{
    char line[256];
    int64_t number = -1;
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    while (number < 0 && fgets(line, sizeof(line), file)) {
        if (strncmp(line, key, strlen(key)) == 0 &&
            sscanf(line + strlen(key), "%" SCNd64, &number) != 1)
            break; // "max": no limit
    }
    fclose(file);
    return number;
}

// The lower of two limits; -1 is no limit.
static int64_t lower(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

// Returns the lowest limit of a control group and its parents, up to the root of the hierarchy,
// whose path is the first `top` bytes. Shortens `path` to the root. -1: no limit.
static int64_t cgroup_chain_limit(char *path, size_t top, const char *name)
{
    int64_t limit = -1;
    for (;;) {
        char file[CGROUP_PATH_MAX + 32];
        snprintf(file, sizeof(file), "%s/%s", path, name);
        limit = lower(limit, file_number(file, ""));
        char *slash = strrchr(path, '/');
        if (!slash || (size_t)(slash - path) < top)
            return limit;
        *slash = '\0';
    }
}

// True if "memory" is in a list such as "cpu,memory".
static bool controls_memory(const char *list, size_t size)
{
    for (size_t begin = 0, end; begin < size; begin = end + 1) {
        for (end = begin; end < size && list[end] != ',';)
            end++;
        if (end - begin == 6 && memcmp(list + begin, "memory", 6) == 0)
            return true;
    }
    return false;
}

// Returns the limit of a line of /proc/self/cgroup: "0::/path" for cgroup v2, "4:cpu,memory:/path"
// for v1. -1: no limit, or a hierarchy without memory.
static int64_t cgroup_line_limit(char *line, const char *root)
{
    char path[CGROUP_PATH_MAX];
    char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
    if (!group)
        return -1;
    bool second = group == list + 1;
    group[1 + strcspn(group + 1, "\n")] = '\0';
    if (!second && !controls_memory(list + 1, (size_t)(group - list - 1)))
        return -1;
    const char *hierarchy = second ? "" : "/memory";
    size_t top = strlen(root) + strlen(hierarchy);
    int length = snprintf(path, sizeof(path), "%s%s%s", root, hierarchy,
                          strcmp(group + 1, "/") == 0 ? "" : group + 1);
    if (length < 0 || (size_t)length >= sizeof(path))
        return -1;
    return cgroup_chain_limit(path, top, second ? "memory.max" : "memory.limit_in_bytes");
}

int64_t host_cgroup_limit(const char *groups, const char *root)
{
    char line[CGROUP_PATH_MAX];
    int64_t limit = -1;
    FILE *file = fopen(groups, "re");
    if (!file)
        return -1;
    while (fgets(line, sizeof(line), file))
        limit = lower(limit, cgroup_line_limit(line, root));
    fclose(file);
    return limit;
}

static int64_t memory_within_groups(const char *key, int64_t fallback)
{
    int64_t kib = file_number("/proc/meminfo", key);
    int64_t bytes = kib > 0 ? kib * 1024 : fallback;
    int64_t limit = host_cgroup_limit("/proc/self/cgroup", "/sys/fs/cgroup");
    return limit > 0 && limit < bytes ? limit : bytes;
}

int64_t host_memory_available(void)
{
    return memory_within_groups("MemAvailable:", MEMORY_FALLBACK_BYTES);
}

int64_t host_memory_most(void)
{
    return memory_within_groups("MemTotal:", INT64_MAX);
}

static int descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 1024;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > INT32_MAX ? INT32_MAX : (int)limit.rlim_cur;
}

// Requests a short time slice, so that on a busy machine this process preempts ranks. Children have
// the default slice. No effect before Linux 6.12. A process with another policy, such as a
// real-time one, keeps it.
static void turns_shorten(void)
{
    const struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {.size = sizeof(attributes),
                    .policy = SCHED_OTHER,
                    .flags = RESET_ON_FORK,
                    .nice = getpriority(PRIO_PROCESS, 0),
                    .runtime_ns = TURN_NS};
    if ((sched_getscheduler(0) & ~SCHED_RESET_ON_FORK) != SCHED_OTHER)
        return;
    if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0)
        log_debug("sched_setattr error=\"%s\"", strerror(errno));
}

enum status host_prepare_process(int *descriptors, struct error *error)
{
    turns_shorten();
    if (syscall(SYS_close_range, 3, ~0U, CLOSE_CLOEXEC) != 0)
        log_debug("close_range error=\"%s\"", strerror(errno));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    umask(077);
    int most = descriptors_raise();
    if (most < HOST_DESCRIPTORS_MIN)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "this process may open %d files and sockets, and needs %d or more; raise "
                         "the limit (LimitNOFILE=, ulimit -n)",
                         most, HOST_DESCRIPTORS_MIN);
    *descriptors = most;
    return STATUS_OK;
}
