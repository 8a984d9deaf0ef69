// SPDX-License-Identifier: Apache-2.0
// Process descriptors (pidfd), as direct system calls: the C library has them only since glibc
// 2.36.
#ifndef CPATTN_DAEMON_PROCESS_PIDFD_H
#define CPATTN_DAEMON_PROCESS_PIDFD_H

#include <signal.h>
#include <sys/types.h>

// Close-on-exec; readable once the process has ended. -1 with errno.
int process_fd_open(pid_t pid);

// As kill(), but never reaches another process; -1 with errno.
int process_fd_signal(int fd, int signal);

// As waitid() for its exit, without waiting.
int process_fd_reap(int fd, siginfo_t *info);

#endif
