// SPDX-License-Identifier: Apache-2.0
// Processes that ranks have left behind. The kernel makes them children of the daemon, wherever in
// the meantime they have gone: to other groups, to sessions of their own.
#ifndef CPATTN_DAEMON_PROCESS_STRAYS_H
#define CPATTN_DAEMON_PROCESS_STRAYS_H

#include <stdbool.h>
#include <sys/types.h>

// Whether strays can be told from what is not ours to kill: the daemon had no children before it
// started any, and is not the process that all orphans come to. To be called once, before the first
// process is started.
bool strays_are_ours(void);

// Kills (if `kill_them`) and reaps the children of this process that are not among the ranks. How
// many of them are left, as far as can be seen.
int strays_end(bool kill_them, bool (*is_rank)(const void *context, pid_t pid),
               const void *context);

#endif
