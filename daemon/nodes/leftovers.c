// SPDX-License-Identifier: Apache-2.0
#include "daemon/nodes/leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Maximum length of a process name in the kernel.
#define COMM_BYTES      15
// Index in the command line PROGRAM RANK WORLD GENERATION PARENT (daemon/process/spawn.h).
#define PARENT_ARGUMENT 4

static ssize_t file_read(int folder, const char *pid, const char *name, char *text, size_t size)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/%s", pid, name);
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length;
}

// Reads state and parent from /proc/PID/stat; false if the process does not have the name `comm`.
static bool stat_read(int folder, const char *pid, const char *comm, char *state, long *parent)
{
    char text[512];
    if (file_read(folder, pid, "stat", text, sizeof(text)) <= 0)
        return false;
    char *begin = strchr(text, '('), *end = strrchr(text, ')');
    size_t length = strlen(comm) < COMM_BYTES ? strlen(comm) : COMM_BYTES;
    return begin && end && (size_t)(end - begin - 1) == length &&
           strncmp(begin + 1, comm, length) == 0 && sscanf(end + 1, " %c %ld", state, parent) == 2;
}

static bool parent_is(int folder, const char *pid, long parent)
{
    char text[512];
    ssize_t length = file_read(folder, pid, "cmdline", text, sizeof(text));
    const char *at = text;
    for (int i = 0; i < PARENT_ARGUMENT; i++) {
        at += strlen(at) + 1;
        if (at >= text + length)
            return false;
    }
    return strtol(at, NULL, 10) == parent;
}

static bool is_left(int folder, const char *pid, const char *comm, uid_t user)
{
    struct stat owner;
    char state;
    long parent;
    return fstatat(folder, pid, &owner, 0) == 0 && owner.st_uid == user &&
           stat_read(folder, pid, comm, &state, &parent) && state != 'Z' &&
           !parent_is(folder, pid, parent);
}

int leftovers_count(const char *rank_program, uid_t user)
{
    const char *slash = strrchr(rank_program, '/');
    const char *comm = slash ? slash + 1 : rank_program;
    int count = 0;
    DIR *folder = opendir("/proc");
    if (!folder)
        return -1;
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            count += is_left(dirfd(folder), entry->d_name, comm, user);
    closedir(folder);
    return count;
}
