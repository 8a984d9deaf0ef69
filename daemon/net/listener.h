// SPDX-License-Identifier: Apache-2.0
// The socket file of the daemon. A lock file permits one daemon per path. The socket file of a
// killed daemon is replaced.
#ifndef CPATTN_DAEMON_NET_LISTENER_H
#define CPATTN_DAEMON_NET_LISTENER_H

#include <stdbool.h>
#include <sys/un.h>

#include "common/status.h"

#define LISTENER_PATH_MAX ((int)sizeof(((struct sockaddr_un *)0)->sun_path)) // with its NUL

struct listener {
    char path[LISTENER_PATH_MAX];
    int lock_fd;
    int fd; // listening; -1: none yet
};

// Locks the file PATH.lock, which only one daemon can hold, and removes the socket file of a killed
// daemon. INVALID_ARGUMENT: the path is empty, too long or not a socket; FAILED_PRECONDITION:
// another daemon serves it; UNAVAILABLE: the system refused.
enum status listener_init(struct listener *l, const char *path, struct error *error) MUST_CHECK;

// Removes the socket file of a killed daemon; the caller holds the lock of the daemon's path. OK
// also if there is no file. INVALID_ARGUMENT: the file is no socket; FAILED_PRECONDITION: a program
// listens on it, or this cannot be found out; UNAVAILABLE: the system refused.
enum status listener_leftover_remove(const char *path, struct error *error) MUST_CHECK;

// Starts listening, mode 0660. The descriptor does not block. UNAVAILABLE: the system refused.
enum status listener_open(struct listener *l, struct error *error) MUST_CHECK;

// Closes the socket and removes socket file and lock file. Accepts a zeroed struct.
void listener_fini(struct listener *l);

#endif
