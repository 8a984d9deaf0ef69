// SPDX-License-Identifier: Apache-2.0
// Strays: processes that ranks have left behind. They become children of the daemon, even if they
// have moved to other process groups or sessions.
#ifndef CPATTN_DAEMON_PROCESS_STRAYS_H
#define CPATTN_DAEMON_PROCESS_STRAYS_H

#include <stdbool.h>
#include <sys/types.h>

// True if strays can be distinguished from other children: the daemon was started without children,
// and is not the process that inherits all orphans (pid 1). Call once, before the first process is
// started.
bool strays_are_ours(void);

// Reaps the ended children of this process that are not ranks; with `kill_them` first kills them.
// Returns the number of killed ones that are not reaped yet; 0 without `kill_them`.
int strays_end(bool kill_them, bool (*is_rank)(const void *context, pid_t pid),
               const void *context);

#endif
