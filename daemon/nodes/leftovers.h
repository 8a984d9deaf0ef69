// SPDX-License-Identifier: Apache-2.0
// Ranks of an agent before this one, such as one that was killed: the kernel ends them with it, but
// a driver may take its time.
#ifndef CPATTN_DAEMON_NODES_LEFTOVERS_H
#define CPATTN_DAEMON_NODES_LEFTOVERS_H

#include <sys/types.h>

// Processes of the user that have the name of the rank program and whose parent is not the one that
// started them, as their command line tells; those that are ending and have none any more count,
// too. -1: /proc cannot be read.
int leftovers_count(const char *rank_program, uid_t user);

#endif
