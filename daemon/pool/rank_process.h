// SPDX-License-Identifier: Apache-2.0
// One rank process of a pool: its start, its channel, its end.
#ifndef CPATTN_DAEMON_POOL_RANK_PROCESS_H
#define CPATTN_DAEMON_POOL_RANK_PROCESS_H

#include "daemon/pool/crew_state.h"
#include "daemon/pool/mesh.h"

// Starts the process and watches it. progress_fd: memory of the progress words. On failure the rank
// is as before, apart from what rank_process_fini() cleans up.
enum status rank_process_start(struct rank_process *r, struct mesh *mesh, int progress_fd,
                               struct error *error) MUST_CHECK;

// Asks a rank that has nothing to do to end by itself.
void rank_process_stop(struct rank_process *r);

// A signal to the group of the process; without effect once that is reaped.
void rank_process_signal(const struct rank_process *r, int number);

// SIGKILL to the process and its group; without effect once it is reaped.
void rank_process_kill(const struct rank_process *r);

// Kills a rank; only its reaping is reported afterwards.
void rank_process_abandon(struct rank_process *r);

// Records a failure of a rank that breaks the channel's rules or cannot be reached.
void rank_process_distrust(struct rank_process *r, const struct error *error);

// Kills and reaps without a report, and closes everything. A process that cannot be reaped is
// logged and left behind. Takes a zeroed struct.
void rank_process_fini(struct rank_process *r, uint64_t deadline_ns);

#endif
