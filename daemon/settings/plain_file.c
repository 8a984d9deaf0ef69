// SPDX-License-Identifier: Apache-2.0
#include "daemon/settings/plain_file.h"

#include <sys/stat.h>

enum status plain_file_check(const char *setting, const char *path, struct error *error)
{
    struct stat stat_of;
    if (!path[0] || stat(path, &stat_of) != 0 || S_ISREG(stat_of.st_mode) ||
        S_ISDIR(stat_of.st_mode))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s: %s is no regular file, and only those are read again", setting, path);
}
