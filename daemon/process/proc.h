// SPDX-License-Identifier: Apache-2.0
// What /proc says of a process of ours.
#ifndef CPATTN_DAEMON_PROCESS_PROC_H
#define CPATTN_DAEMON_PROCESS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// State letter; 'X' when the process is gone or hidden from us, or pid is 0.
char proc_state(pid_t pid);

// The line of /proc/PID/status that begins with `key` ("Uid:"), without the key and the space
// behind it. False when there is none, or the process is gone or hidden.
bool proc_status_line(pid_t pid, const char *key, char *text, size_t size);

// How it ends, as wait() will tell, once it has begun to: a driver may take a tenth of a second to
// take down what it used, and only then can it be reaped. 0 also where that is hidden from us, as
// it may be with another user's process. False while it lives.
bool proc_exit_status(pid_t pid, int *wait_status);

// Its memory that counts as data; 0 when that is not known.
int64_t proc_data_bytes(pid_t pid);

// Its children, in the order of their starts, up to `max`. None also where the kernel keeps no
// list, or the process is gone.
int proc_children(pid_t pid, pid_t *pids, int max);

#define PROC_TEXT_MAX 128

// What keeps a process that should have ended: "pid 4711, state D, in nvidia_poll", "pid 4711,
// state Z, traced by process 12".
const char *proc_describe(pid_t pid, char text[PROC_TEXT_MAX]);

#endif
