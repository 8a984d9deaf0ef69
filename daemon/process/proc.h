// SPDX-License-Identifier: Apache-2.0
// Information from /proc about a process of the daemon.
#ifndef CPATTN_DAEMON_PROCESS_PROC_H
#define CPATTN_DAEMON_PROCESS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// State letter; 'X': the process is gone or hidden, or pid is 0.
char proc_state(pid_t pid);

// The line of /proc/PID/status that begins with `key` ("Uid:"), without the key and the space
// behind it. False when there is none, or the process is gone or hidden.
bool proc_status_line(pid_t pid, const char *key, char *text, size_t size);

// Returns the wait status of a process that has begun to end. A GPU driver may take a tenth of a
// second before the process can be reaped. Status 0 also if it is hidden, as for another user's
// process. False: the process lives.
bool proc_exit_status(pid_t pid, int *wait_status);

// Size of its data memory; 0: not known.
int64_t proc_data_bytes(pid_t pid);

// Its children in the order of their starts, up to `max`. None also if the kernel has no list, or
// the process is gone.
int proc_children(pid_t pid, pid_t *pids, int max);

#define PROC_TEXT_MAX 128

// Describes why a killed process has not ended: "pid 4711, state D, in nvidia_poll", "pid 4711,
// state Z, traced by process 12".
const char *proc_describe(pid_t pid, char text[PROC_TEXT_MAX]);

#endif
