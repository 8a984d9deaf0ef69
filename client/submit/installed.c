// SPDX-License-Identifier: Apache-2.0
#include "client/submit/installed.h"

#include <config.h> // the build's
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Writes FOLDER/NAME; 0 where that is no file that can be read.
static int file_find(const char *folder, const char *name, char path[PATH_MAX])
{
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return length < PATH_MAX && access(path, R_OK) == 0;
}

const char *installed_find(const char *name, char path[PATH_MAX])
{
    static const char beside[] = "/../share/" PACKAGE;
    char folder[PATH_MAX + sizeof(beside)];
    if (strchr(name, '/') || access(name, F_OK) == 0)
        return name;
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash) {
        strcpy(slash, beside);
        if (file_find(folder, name, path))
            return path;
    }
    return file_find(CPATTN_DATA_PATH, name, path) ? path : name;
}
