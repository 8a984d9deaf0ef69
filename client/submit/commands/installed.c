// SPDX-License-Identifier: Apache-2.0
#include "client/submit/commands/installed.h"

#include <config.h> // the build's
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Writes the path FOLDER/NAME; returns 0 if that is not a readable file.
static int file_find(const char *folder, const char *name, char path[PATH_MAX])
{
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return length < PATH_MAX && access(path, R_OK) == 0;
}

// The folder of the files that were installed with this program; false if it is unknown.
static bool folder_beside(char folder[PATH_MAX])
{
    static const char beside[] = "/../share/" PACKAGE;
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (!slash || (size_t)(slash - folder) + sizeof(beside) > PATH_MAX)
        return false;
    strcpy(slash, beside);
    return true;
}

const char *installed_find(const char *name, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    if (strchr(name, '/') || access(name, F_OK) == 0)
        return name;
    if (folder_beside(folder) && file_find(folder, name, path))
        return path;
    return file_find(CPATTN_DATA_PATH, name, path) ? path : name;
}

const char *installed_where(const char *name, char text[INSTALLED_WHERE_MAX])
{
    char folder[PATH_MAX], clean[PATH_MAX];
    bool beside = folder_beside(folder) && realpath(folder, clean);
    text[0] = '\0';
    if (strchr(name, '/'))
        return text;
    if (beside && strcmp(clean, CPATTN_DATA_PATH) != 0)
        snprintf(text, INSTALLED_WHERE_MAX, " here, in %s or in %s", clean, CPATTN_DATA_PATH);
    else
        snprintf(text, INSTALLED_WHERE_MAX, " here or in %s", CPATTN_DATA_PATH);
    return text;
}
