// SPDX-License-Identifier: Apache-2.0
// Information from /proc about a child of the daemon.
#ifndef CPATTN_DAEMON_PROCESS_PROC_H
#define CPATTN_DAEMON_PROCESS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// State letter; 'X': the process is gone or hidden, or pid is 0.
char proc_state(pid_t pid);

// Copies the line of /proc/PID/status that begins with `key` ("Uid:"), without the key and the
// space after it. False: there is none, or the process is gone or hidden.
bool proc_status_line(pid_t pid, const char *key, char *text, size_t size);

// True if the process is ending; then *wait_status is its wait status. It is known before the
// process can be reaped, which a GPU driver may delay by a tenth of a second. The kernel shows
// status 0 for another user's process. False: the process is not ending, or its state is not known.
bool proc_exit_status(pid_t pid, int *wait_status);

// Size of its data memory in bytes; 0: not known.
int64_t proc_data_bytes(pid_t pid);

// Lists its children in the order of their starts, up to `max`. Returns their number; 0 also if the
// kernel provides no list or the process is gone.
int proc_children(pid_t pid, pid_t *pids, int max);

#define PROC_TEXT_MAX 128

// Describes why a killed process has not ended: "pid 4711, state D, in nvidia_poll", "pid 4711,
// state Z, traced by process 12".
const char *proc_describe(pid_t pid, char text[PROC_TEXT_MAX]);

#endif
