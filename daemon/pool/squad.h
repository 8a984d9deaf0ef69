// SPDX-License-Identifier: Apache-2.0
// A squad: the ranks of one pool on this host. Starts them, and reports what they say, write and
// how they end; does not interpret it. All calls on the loop's thread, which must be the main
// thread (daemon/process/spawn.h).
#ifndef CPATTN_DAEMON_POOL_SQUAD_H
#define CPATTN_DAEMON_POOL_SQUAD_H

#include "daemon/pool/squad_state.h"

struct squad_start {
    uint32_t generation;
    const struct guest *guest; // NULL: a rank program of ours
    int world_size;
    const int *devices; // [world_size], of the ranks here; -1: none. NULL: none has one
    const bool *here;   // [world_size]; NULL: all are
};

// Begins to start the ranks that are here, one after the other. If other ranks are on other hosts,
// none is started before squad_connect() has brought all sockets; that may take up to 10 s. On
// failure none is alive and *squad is NULL; what fails later is told by `not_started`.
enum status squad_create(struct rank_host *host, const struct squad_start *start,
                         const struct squad_handler *handler, struct squad **squad,
                         struct error *error) MUST_CHECK;

// Kills and reaps without a report; what cannot be reaped by then is logged and left behind. Takes
// NULL.
void squad_destroy(struct squad *squad, uint64_t deadline_ns);

// Takes over a connected stream socket from `rank`, which is here, to `peer`, which is not. False,
// and the socket is closed: it exists already, the pair is wrong, or it is too late.
bool squad_connect(struct squad *squad, int rank, int peer, int fd);

// Ends a start that waits for sockets: `not_started` follows, perhaps in this call.
void squad_fail(struct squad *squad, const struct error *error);

// The starter's answer about the rank that is being made.
void squad_made(struct squad *squad, pid_t pid, const struct error *told);

// Sends a frame to a rank, as channel_send_fds(). UNAVAILABLE also if its channel is closed.
enum status squad_send(const struct squad *squad, int rank, enum channel_type type, uint64_t job,
                       const void *payload, uint32_t length, const int *fds, int count,
                       struct error *error) MUST_CHECK;

// Signals the group of each process that is not reaped.
void squad_signal(const struct squad *squad, int number);

// SIGKILL to every rank and its group; each is reported as `gone` when it is reaped. For those not
// started yet that is in the next round of the loop, or when the starter has made one.
void squad_kill(struct squad *squad);

// Asks each rank to end by itself. What is not started is treated as by squad_kill().
void squad_stop(struct squad *squad);

// Reads the pending stderr output of the ranks.
void squad_drain_stderr(struct squad *squad);

#endif
