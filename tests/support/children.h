// SPDX-License-Identifier: Apache-2.0
// The children of a daemon.
#ifndef CPATTN_TESTS_SUPPORT_CHILDREN_H
#define CPATTN_TESTS_SUPPORT_CHILDREN_H

#include <sys/types.h>

// The process that starts ranks; 0: there is none.
pid_t children_starter(pid_t daemon);

// All others, up to `max`, in the order of their starts: ranks, and what ranks have left behind.
int children_of(pid_t daemon, pid_t *pids, int max);

#endif
