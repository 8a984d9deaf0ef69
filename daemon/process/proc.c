// SPDX-License-Identifier: Apache-2.0
#include "daemon/process/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Reads the beginning of /proc/PID/NAME. False: it is empty, missing or not readable.
static bool file_read(pid_t pid, const char *name, char *text, size_t size)
{
    char path[48];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

char proc_state(pid_t pid)
{
    char text[512];
    if (!file_read(pid, "stat", text, sizeof(text)))
        return 'X';
    // The process name, in parentheses, may contain any characters, including parentheses.
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' && end[2] > ' ' ? end[2] : 'X';
}

bool proc_exit_status(pid_t pid, int *wait_status)
{
    enum { FIELD_STATE = 3, FIELD_FLAGS = 9, FIELD_EXIT_CODE = 52, EXITING = 4 };
    char text[1024];
    long flags = 0, code = 0;
    if (!file_read(pid, "stat", text, sizeof(text)))
        return false;
    char *rest, *fields = strrchr(text, ')');
    char *field = fields ? strtok_r(fields + 1, " ", &rest) : NULL;
    for (int i = FIELD_STATE; field && i <= FIELD_EXIT_CODE; i++) {
        flags = i == FIELD_FLAGS ? strtol(field, NULL, 10) : flags;
        code = i == FIELD_EXIT_CODE ? strtol(field, NULL, 10) : code;
        field = strtok_r(NULL, " ", &rest);
    }
    *wait_status = (int)code;
    return flags & EXITING;
}

bool proc_status_line(pid_t pid, const char *key, char *text, size_t size)
{
    char all[8192];
    if (!file_read(pid, "status", all, sizeof(all)))
        return false;
    // The first line is the process name, whose newlines are escaped.
    for (char *rest, *line = strtok_r(all, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        line += strlen(key);
        snprintf(text, size, "%s", line + strspn(line, " \t"));
        return true;
    }
    return false;
}

int64_t proc_data_bytes(pid_t pid)
{
    char text[48];
    bool known = proc_status_line(pid, "VmData:", text, sizeof(text)); // in units of 1024 bytes
    return known ? (int64_t)strtoll(text, NULL, 10) * 1024 : 0;
}

int proc_children(pid_t pid, pid_t *pids, int max)
{
    char path[64];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    while (file && count < max && fscanf(file, "%d", &pids[count]) == 1)
        count++;
    if (file)
        fclose(file);
    return count;
}

const char *proc_describe(pid_t pid, char text[PROC_TEXT_MAX])
{
    char value[48];
    int length = snprintf(text, PROC_TEXT_MAX, "pid %d, state %c", (int)pid, proc_state(pid));
    if (proc_status_line(pid, "TracerPid:", value, sizeof(value)) && strcmp(value, "0") != 0)
        snprintf(text + length, PROC_TEXT_MAX - (size_t)length, ", traced by process %s", value);
    else if (file_read(pid, "wchan", value, sizeof(value)) && strcmp(value, "0") != 0)
        snprintf(text + length, PROC_TEXT_MAX - (size_t)length, ", in %s", value);
    return text;
}
