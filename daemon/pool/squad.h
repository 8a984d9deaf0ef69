// SPDX-License-Identifier: Apache-2.0
// A squad: the ranks of one pool that are on this host. Starts them, and reports their messages,
// output and ends without interpreting them. All calls on the loop's thread, which must be the main
// thread (daemon/process/spawn.h).
#ifndef CPATTN_DAEMON_POOL_SQUAD_H
#define CPATTN_DAEMON_POOL_SQUAD_H

#include "daemon/pool/squad_state.h"

struct squad_start {
    uint32_t generation;
    const struct guest *guest; // NULL: the daemon's own rank program
    int world_size;
    const int *devices; // [world_size], GPU of each rank on this host, -1: none. NULL: no GPUs
    const bool *here;   // [world_size], true: the rank is on this host; NULL: all are
};

// Begins to start the ranks on this host, one after the other. If the pool has ranks on other
// hosts, waits first for all sockets from squad_connect(), up to 10 s. On failure no rank is alive
// and *squad is NULL. Later failures are reported by `not_started`.
enum status squad_create(struct rank_host *host, const struct squad_start *start,
                         const struct squad_handler *handler, struct squad **squad,
                         struct error *error) MUST_CHECK;

// Kills the ranks and reaps them without a report, until deadline_ns; logs the remaining ones.
// Accepts NULL.
void squad_destroy(struct squad *squad, uint64_t deadline_ns);

// Takes over a connected stream socket from `rank` on this host to `peer` on another. False: the
// pair has a socket, the pair is wrong, or the start is over; the socket is closed.
bool squad_connect(struct squad *squad, int rank, int peer, int fd);

// Fails a start in progress, because a socket is missing: calls `not_started`, now or later. No
// effect after the start or after a kill.
void squad_fail(struct squad *squad, const struct error *error);

// The starter's answer about the rank that is being created: its pid, or the error.
void squad_made(struct squad *squad, pid_t pid, const struct error *told);

// Sends a frame to a rank of this host, as channel_send_fds(). UNAVAILABLE also if its channel is
// closed.
enum status squad_send(const struct squad *squad, int rank, enum channel_type type, uint64_t job,
                       const void *payload, uint32_t length, const int *fds, int count,
                       struct error *error) MUST_CHECK;

// Sends a signal to the process group of each rank that is not reaped.
void squad_signal(const struct squad *squad, int number);

// Sends SIGKILL to every rank and its group; each is reported as `gone` when it is reaped. Ranks
// that are not started yet are reported in the next round of the loop, or when the starter has
// answered.
void squad_kill(struct squad *squad);

// Sends each rank the message STOP. Ranks that are not started yet are treated as by squad_kill().
void squad_stop(struct squad *squad);

// Reads the pending stderr output of the ranks.
void squad_drain_stderr(struct squad *squad);

#endif
