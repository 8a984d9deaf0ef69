// SPDX-License-Identifier: Apache-2.0
// The starter: a process of the daemon that starts ranks for it. Creating a process and waiting
// until it runs its program takes milliseconds, which would hold the loop up. The ranks are still
// children of the daemon, and are killed when it ends; so is the starter. A starter that ends is
// lost; one that gives no answer for 3 s is killed, and lost likewise. If the starter is lost, the
// ranks that it was about to start are not started, and the next order makes another starter. All
// calls on the loop's thread, which must be the main thread.
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
    uint64_t ticket; // the caller's, given back with the answer
    int rank, world_size;
    int implementation; // 0: our rank program; i: guest i - 1
    int device;         // index of its GPU; -1: none
    uint32_t generation;
};

// What the rank gets; borrowed for the call.
struct starter_fds {
    int null_fd, stderr_fd, channel_fd, progress_fd;
    const int *mesh; // [world_size], the own entry -1
};

struct starter_handler {
    void *context;
    // The answer to an order. status 0: it is a child of the daemon and runs its program.
    // Otherwise there is no process.
    void (*started)(void *context, const struct starter_order *order, pid_t pid,
                    const struct error *error);
    // The starter is lost, and with it all orders that are not answered.
    void (*lost)(void *context, const struct error *error);
};

// What the orders are about. All is borrowed for the life of the starter and does not change.
struct starter_config {
    const char *program;
    const struct guests *guests;
    const struct confinement *confinement, *guest_confinement;
    char *const *environment, *const *guest_environment;
    struct starter_handler handler;
};

struct starter;
enum status starter_create(struct ev_loop *loop, const struct starter_config *config,
                           struct starter **starter, struct error *error) MUST_CHECK;

// Drops unanswered orders silently. Takes NULL.
void starter_destroy(struct starter *s);

// Orders a rank. The descriptors can be closed afterwards. After a failure there is no answer.
enum status starter_order(struct starter *s, const struct starter_order *order,
                          const struct starter_fds *fds, struct error *error) MUST_CHECK;

// Whether there are orders that are not answered: then there may be a rank that is not known yet.
bool starter_is_busy(const struct starter *s);

// Its process; 0: it is lost.
pid_t starter_pid(const struct starter *s);

#endif
