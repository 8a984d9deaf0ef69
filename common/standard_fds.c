// SPDX-License-Identifier: Apache-2.0
#include "common/standard_fds.h"

#include <fcntl.h>
#include <unistd.h>

// open() returns the lowest free number.
void standard_fds_fill(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
            return;
}
