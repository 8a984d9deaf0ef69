// SPDX-License-Identifier: Apache-2.0
// Process descriptors (pidfd), as direct system calls: the C library has them only since glibc
// 2.36.
#ifndef CPATTN_DAEMON_PROCESS_PIDFD_H
#define CPATTN_DAEMON_PROCESS_PIDFD_H

#include <signal.h>
#include <sys/types.h>

// Opens a close-on-exec descriptor, which is readable once the process has ended. -1 with errno.
int process_fd_open(pid_t pid);

// As kill(), but cannot reach another process that reuses the pid. -1 with errno.
int process_fd_signal(int fd, int signal);

// Reaps the process if it has ended, as waitid() with WNOHANG: 0 with info->si_pid 0 if it has not.
int process_fd_reap(int fd, siginfo_t *info);

#endif
