// SPDX-License-Identifier: Apache-2.0
#include "client/link_refusals.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/net_url.h"

#define GROUP_BYTES_MAX 4096 // of a group's entry with its members; if larger, its number is shown

// Length of the path up to its last slash; 0 if it has none, or only the root's.
static int folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash - path) : 0;
}

enum status link_refuse_unreachable(const char *path, struct error *error)
{
    struct stat status;
    if (net_url_is_meant(path))
        return error_set(error, STATUS_UNAVAILABLE,
                         "no daemon at %s: nothing listens there; start one there with "
                         "'cpattnd --listen %s', see cpattnd(8), NETWORK",
                         path, path);
    bool there = stat(path, &status) == 0, absent = !there && errno == ENOENT;
    if (there && !S_ISSOCK(status.st_mode))
        return error_set(error, STATUS_UNAVAILABLE,
                         "no daemon at %s: it is %s, not a socket; name the socket of a daemon "
                         "that runs",
                         path, S_ISDIR(status.st_mode) ? "a directory" : "a file");
    int folder = folder_length(path);
    if (absent && folder > 0) {
        char name[PATH_MAX];
        snprintf(name, sizeof(name), "%.*s", folder, path);
        if (stat(name, &status) != 0 && errno == ENOENT)
            return error_set(error, STATUS_UNAVAILABLE,
                             "no daemon at %s: there is no directory %s; name the socket of a "
                             "daemon that runs, or make the directory and start it with "
                             "'cpattnd --socket %s'",
                             path, name, path);
    }
    return error_set(error, STATUS_UNAVAILABLE,
                     "no daemon at %s: %s; start it with 'systemctl start cpattnd' or "
                     "'cpattnd --socket %s'",
                     path, absent ? "there is no such socket" : "nothing listens there", path);
}

// The group of the socket, or of its folder if that hides the socket. False if neither is known.
static bool group_of(const char *path, gid_t *group)
{
    struct stat status;
    char folder[PATH_MAX];
    snprintf(folder, sizeof(folder), "%.*s", folder_length(path), path);
    if (stat(path, &status) != 0 && stat(folder, &status) != 0)
        return false;
    *group = status.st_gid;
    return true;
}

enum status link_refuse_user(const char *path, struct error *error)
{
    char room[GROUP_BYTES_MAX], name[64];
    struct group entry, *found = NULL;
    gid_t group;
    if (!group_of(path, &group))
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "the socket %s may not be used by this user; its group may", path);
    getgrgid_r(group, &entry, room, sizeof(room), &found);
    snprintf(name, sizeof(name), "%u", (unsigned)group);
    if (found)
        snprintf(name, sizeof(name), "%s", found->gr_name);
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "the socket %s may not be used by this user; members of the group %s may, "
                     "from their next login",
                     path, name);
}
