// SPDX-License-Identifier: Apache-2.0
// Processes that ranks have left behind. The kernel makes them children of the daemon, even if they
// have moved to other groups or sessions.
#ifndef CPATTN_DAEMON_PROCESS_STRAYS_H
#define CPATTN_DAEMON_PROCESS_STRAYS_H

#include <stdbool.h>
#include <sys/types.h>

// True if strays can be told from other children: the daemon has no children that it did not start,
// and is not the process that inherits all orphans. Call once, before the first process is started.
bool strays_are_ours(void);

// Kills (if `kill_them`) and reaps the children of this process that are not ranks. Returns the
// number of remaining ones, as far as visible.
int strays_end(bool kill_them, bool (*is_rank)(const void *context, pid_t pid),
               const void *context);

#endif
