// SPDX-License-Identifier: Apache-2.0
#include "daemon/machine/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/limits.h"
#include "common/log.h"

// Kernels without /proc/meminfo do not exist; a sandbox that hides it does.
#define MEMORY_FALLBACK_BYTES (INT64_C(1) << 30)

int host_cores(void)
{
    cpu_set_t set;
    // The set is too small for the largest machines.
    bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
    long cores = known ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > DEVICES_MAX ? DEVICES_MAX : (int)cores;
}

// The number that follows `key` in a file of lines; -1 where there is none.
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

static int64_t cgroup_limit(void)
{
    char line[512], path[600];
    int64_t limit = -1;
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return -1;
    while (fgets(line, sizeof(line), file)) {
        if (strncmp(line, "0::", 3) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
        limit = file_number(path, "");
    }
    fclose(file);
    return limit;
}

int64_t host_memory_available(void)
{
    int64_t kib = file_number("/proc/meminfo", "MemAvailable:");
    int64_t bytes = kib > 0 ? kib * 1024 : MEMORY_FALLBACK_BYTES;
    int64_t limit = cgroup_limit();
    return limit > 0 && limit < bytes ? limit : bytes;
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

int host_prepare_process(void)
{
    if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
        log_debug("close_range error=\"%s\"", strerror(errno));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    umask(077);
    return descriptors_raise();
}
