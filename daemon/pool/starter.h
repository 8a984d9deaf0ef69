// SPDX-License-Identifier: Apache-2.0
// The starter: a process that creates the ranks for the daemon. Creating a process and waiting
// until it runs its program takes milliseconds, during which the daemon's loop would be blocked.
// The ranks are still children of the daemon. Ranks and starter are killed when the daemon ends.
//
// A starter that ends is lost; one that does not answer for 3 s is killed and lost. Its unanswered
// requests have then failed, and the next request creates another starter. If a starter dies while
// it has no requests, no request fails. All calls on the loop's thread, which must be the main
// thread.
#ifndef CPATTN_DAEMON_POOL_STARTER_H
#define CPATTN_DAEMON_POOL_STARTER_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/status.h"
#include "daemon/process/confine.h"
#include "daemon/settings/guests.h"

// The name of the process.
#define STARTER_NAME "cpattnd-starter"

struct starter_order {
    uint64_t ticket; // chosen by the caller, returned with the answer
    int rank, world_size;
    int implementation; // 0: the daemon's own rank program; i: guest i - 1
    int device;         // index of its GPU; -1: none
    uint32_t generation;
};

// Descriptors of the rank; borrowed for the call.
struct starter_fds {
    int null_fd, stderr_fd, channel_fd, progress_fd;
    const int *mesh; // [world_size], -1 for the rank itself
};

struct starter_handler {
    void *context;
    // The answer to a request. status 0: the process is a child of the daemon and runs its program.
    // Otherwise no rank runs; if pid is not 0, the process has ended and must be reaped.
    void (*started)(void *context, const struct starter_order *order, pid_t pid,
                    const struct error *error);
    // The starter is lost, and all unanswered requests have failed.
    void (*lost)(void *context, const struct error *error);
};

// The programs that requests refer to. The struct is copied; its pointers are borrowed for the life
// of the starter, and what they point to must not change.
struct starter_config {
    const char *program;
    const struct guests *guests;
    const struct confinement *confinement, *guest_confinement;
    char *const *environment, *const *guest_environment;
    struct starter_handler handler;
};

// Creates the process and waits until it is ready, up to 2 s. RESOURCE_EXHAUSTED, UNAVAILABLE.
struct starter;
enum status starter_create(struct ev_loop *loop, const struct starter_config *config,
                           struct starter **starter, struct error *error) MUST_CHECK;

// Kills and reaps the process; drops unanswered requests without a report. Accepts NULL.
void starter_destroy(struct starter *s);

// Requests a rank. The caller may close the descriptors afterwards. After a failure no answer
// follows.
enum status starter_order(struct starter *s, const struct starter_order *order,
                          const struct starter_fds *fds, struct error *error) MUST_CHECK;

// True if there are unanswered requests. Then a rank may exist that the daemon does not know yet.
bool starter_is_busy(const struct starter *s);

// The pid of the starter; 0: it is lost.
pid_t starter_pid(const struct starter *s);

#endif
