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

// Kills a rank that nothing is to be heard of any more but that it is reaped.
void rank_process_abandon(struct rank_process *r);

// What is held against a rank that does not keep to the channel's rules, or cannot be reached.
void rank_process_distrust(struct rank_process *r, const struct error *error);

// Kills, reaps without a report, closes everything. A process that cannot be reaped until then is
// left behind, which the log tells. Takes a zeroed one.
void rank_process_fini(struct rank_process *r, uint64_t deadline_ns);

#endif
