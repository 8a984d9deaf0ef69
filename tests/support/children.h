// SPDX-License-Identifier: Apache-2.0
// The children of a daemon.
#ifndef CPATTN_TESTS_SUPPORT_CHILDREN_H
#define CPATTN_TESTS_SUPPORT_CHILDREN_H

#include <sys/types.h>

// The process that starts ranks; 0: none.
pid_t children_starter(pid_t daemon);

// All other children, up to `max`, in order of start: ranks, and orphans of ranks.
int children_of(pid_t daemon, pid_t *pids, int max);

#endif
