// SPDX-License-Identifier: Apache-2.0
#include "tests/support/children.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/pool/starter.h"

static bool is_starter(pid_t pid)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    bool is = file && fscanf(file, "%31s", name) == 1 && strcmp(name, STARTER_NAME) == 0;
    if (file)
        fclose(file);
    return is;
}

static FILE *children_open(pid_t daemon)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon, (int)daemon);
    return fopen(path, "re");
}

pid_t children_starter(pid_t daemon)
{
    pid_t found = 0;
    FILE *file = children_open(daemon);
    for (int pid; file && found == 0 && fscanf(file, "%d", &pid) == 1;)
        found = is_starter(pid) ? pid : 0;
    if (file)
        fclose(file);
    return found;
}

int children_of(pid_t daemon, pid_t *pids, int max)
{
    int count = 0;
    FILE *file = children_open(daemon);
    for (int pid; file && count < max && fscanf(file, "%d", &pid) == 1;)
        if (!is_starter(pid))
            pids[count++] = pid;
    if (file)
        fclose(file);
    return count;
}
