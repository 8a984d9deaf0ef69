// SPDX-License-Identifier: Apache-2.0
// One rank process on this host: its start, channel, stderr and end. Reports messages and end to
// the handler of its squad.
#ifndef CPATTN_DAEMON_POOL_RANK_CHILD_H
#define CPATTN_DAEMON_POOL_RANK_CHILD_H

#include "daemon/pool/squad_state.h"

// Requests the process from the starter. `mesh`: its sockets, as in struct starter_fds. After a
// failure call rank_child_fini().
enum status rank_child_order(struct rank_child *c, const int *mesh, int progress_fd,
                             struct error *error) MUST_CHECK;

// The starter has created the process: begins to watch it. After a failure call rank_child_fini(),
// which ends it.
enum status rank_child_made(struct rank_child *c, pid_t pid, struct error *error) MUST_CHECK;

// Closes the daemon's end of its channel.
void rank_child_close(struct rank_child *c);

// Sends a signal to the group of the process; no effect after it is reaped.
void rank_child_signal(const struct rank_child *c, int number);

// Sends SIGKILL to the process and its group; no effect after it is reaped.
void rank_child_kill(const struct rank_child *c);

// Kills a rank; afterwards only its reaping is reported.
void rank_child_abandon(struct rank_child *c);

// The state letter of its process ('X': gone or ending), and true if its memory has reached the
// limit rank-memory.
char rank_child_state(const struct rank_child *c);
bool rank_child_at_memory_limit(const struct rank_child *c);

// Kills and reaps without a report, and closes everything. Logs a process that cannot be reaped.
// Accepts a zeroed struct.
void rank_child_fini(struct rank_child *c, uint64_t deadline_ns);

#endif
