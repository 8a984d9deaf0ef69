// SPDX-License-Identifier: Apache-2.0
// One rank process of this host: its start, its channel, its stderr, its end. What it says and how
// it ends goes to the handler of its squad.
#ifndef CPATTN_DAEMON_POOL_RANK_CHILD_H
#define CPATTN_DAEMON_POOL_RANK_CHILD_H

#include "daemon/pool/squad_state.h"

// Orders the process from the starter. `mesh`: its sockets, as struct starter_fds has them. On
// failure
// the rank is as before, apart from what rank_child_fini() cleans up.
enum status rank_child_order(struct rank_child *c, const int *mesh, int progress_fd,
                             struct error *error) MUST_CHECK;

// The process is made: watches it. On failure rank_child_fini() ends it.
enum status rank_child_made(struct rank_child *c, pid_t pid, struct error *error) MUST_CHECK;

// Closes its channel: nothing more is received from it or sent to it.
void rank_child_close(struct rank_child *c);

// A signal to the group of the process; without effect once that is reaped.
void rank_child_signal(const struct rank_child *c, int number);

// SIGKILL to the process and its group; without effect once it is reaped.
void rank_child_kill(const struct rank_child *c);

// Kills a rank; only its reaping is reported afterwards.
void rank_child_abandon(struct rank_child *c);

// The state letter of its process; 'X': it is gone or ends. And whether it has used all memory that
// rank-memory allows.
char rank_child_state(const struct rank_child *c);
bool rank_child_at_memory_limit(const struct rank_child *c);

// Kills and reaps without a report, and closes everything. A process that cannot be reaped is
// logged and left behind. Takes a zeroed struct.
void rank_child_fini(struct rank_child *c, uint64_t deadline_ns);

#endif
