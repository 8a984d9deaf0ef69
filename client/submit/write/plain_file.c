// SPDX-License-Identifier: Apache-2.0
#include "client/submit/write/plain_file.h"

#include <sys/stat.h>

bool plain_file(const char *path)
{
    struct stat found;
    return lstat(path, &found) != 0 || S_ISREG(found.st_mode);
}
