// SPDX-License-Identifier: Apache-2.0
#include "daemon/process/pidfd.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ID_IS_PIDFD ((idtype_t)3) // P_PIDFD of newer headers

int process_fd_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

int process_fd_signal(int fd, int signal)
{
    return (int)syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
}

int process_fd_reap(int fd, siginfo_t *info)
{
    return waitid(ID_IS_PIDFD, (id_t)fd, info, WEXITED | WNOHANG);
}
