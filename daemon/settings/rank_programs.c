// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/rank_programs.h"

#include <config.h> // the build's, not the one beside this file
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Removes the last component of a path; false if there is none.
static bool path_cut(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

// Finds the folder of the daemon's program. In a build tree libtool may keep the program in a
// subfolder .libs, which is removed from the path.
static bool folder_find(char *folder)
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length <= 0)
        return false;
    folder[length] = '\0';
    if (!path_cut(folder))
        return false;
    const char *name = strrchr(folder, '/');
    if (name && strcmp(name, "/.libs") == 0)
        path_cut(folder);
    return true;
}

// Fills in `path` if it is "". Looks beside the daemon and in the libexec folder next to the
// daemon's folder for an executable file; if there is none, takes the configured path.
static void program_find(const char *name, const char *installed, char *path)
{
    static const char *const places[] = {"", "/../libexec/" PACKAGE};
    char folder[PATH_MAX];
    if (path[0])
        return;
    bool known = folder_find(folder);
    for (size_t i = 0; known && i < sizeof(places) / sizeof(places[0]); i++) {
        int length = snprintf(path, PATH_MAX, "%s%s/%s", folder, places[i], name);
        if (length < PATH_MAX && access(path, X_OK) == 0)
            return;
    }
    snprintf(path, PATH_MAX, "%s", installed);
}

enum status rank_programs_find(char *cpu, char *cuda, struct error *error)
{
    program_find("cpattn-rank", CPATTN_RANK_PROGRAM, cpu);
    program_find("cpattn-rank-cuda", CPATTN_CUDA_RANK_PROGRAM, cuda);
    if (access(cpu, X_OK) != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "cannot execute %s: %s; name the program of the ranks with --rank-program",
                         cpu, strerror(errno));
    return STATUS_OK;
}
