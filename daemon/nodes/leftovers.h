// SPDX-License-Identifier: Apache-2.0
// Ranks of an earlier agent that was killed. The kernel ends them with their agent, but a driver
// may delay this.
#ifndef CPATTN_DAEMON_NODES_LEFTOVERS_H
#define CPATTN_DAEMON_NODES_LEFTOVERS_H

#include <sys/types.h>

// Returns the number of processes of the user with the name of the rank program whose parent is not
// the one in their command line. An ending process, which has no command line, counts, too; zombies
// do not. -1: /proc cannot be read.
int leftovers_count(const char *rank_program, uid_t user);

#endif
