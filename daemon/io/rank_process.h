// SPDX-License-Identifier: Apache-2.0
// One rank process of a pool: its start, its channel, its end.
#ifndef CPATTN_DAEMON_IO_RANK_PROCESS_H
#define CPATTN_DAEMON_IO_RANK_PROCESS_H

#include "daemon/io/crew.h"
#include "daemon/io/mesh.h"
#include "daemon/io/spawn.h"

struct crews {
    struct ev_loop *loop;
    struct crew_handler handler;
    const char *program;
    const struct guests *guests;
    const struct confinement *confinement;
    struct confinement guest_confinement;
    char **environment, **guest_environment;
    int null_fd;
    bool kills_strays;
    struct crew *table; // [POOLS_MAX]
    // One frame's payload; frames are dealt with one at a time.
    _Alignas(16) uint8_t payload[CHANNEL_PAYLOAD_MAX];
};

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

// What is held against a rank that does not keep to the channel's rules, or cannot be reached.
void rank_process_distrust(struct rank_process *r, const struct error *error);

// Told by rank_process.c to crew.c: the process is reaped. The crew may be gone afterwards.
void crew_rank_gone(struct crew *crew, int rank);

// Kills, reaps without a report, closes everything. A process that cannot be reaped until then is
// left behind, which the log tells. Takes a zeroed one.
void rank_process_fini(struct rank_process *r, uint64_t deadline_ns);

#endif
