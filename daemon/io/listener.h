// SPDX-License-Identifier: Apache-2.0
// The socket file of the daemon: lock, listen, and listen anew when the listener has died.
//
// nng up to 1.5 ends its accept loop for good when a peer closes in the middle of the handshake
// (its EPIPE is taken for "listener closed"). connect() goes on to succeed then, and nobody is
// served. A probe notices; listener_reopen() unlinks the path and starts one more listener on the
// same socket. The dead one has to stay open: closing it would reset every connected client and
// unlink the new path.
#ifndef CPATTN_DAEMON_IO_LISTENER_H
#define CPATTN_DAEMON_IO_LISTENER_H

#include <nng/nng.h>
#include <stdbool.h>
#include <sys/un.h>

#include "common/status.h"

// Listeners on one path over the daemon's life. Each costs a descriptor; when they are used up, a
// restart is due.
#define LISTENERS_MAX 33

#define LISTENER_PATH_MAX ((int)sizeof(((struct sockaddr_un *)0)->sun_path))

struct listener {
    nng_socket socket;
    char path[LISTENER_PATH_MAX];
    int lock_fd;
    int count;
    int fds[LISTENERS_MAX]; // owned by nng; -1 where unknown
};

// Takes the lock file beside the path, so that no other daemon is disturbed, and removes a socket
// file that a killed one left. INVALID_ARGUMENT: the path is too long or no socket;
// FAILED_PRECONDITION: another daemon serves it; UNAVAILABLE: the system refused.
enum status listener_init(struct listener *l, const char *path, struct error *error) MUST_CHECK;

// Starts listening, mode 0660.
enum status listener_open(struct listener *l, nng_socket socket, struct error *error) MUST_CHECK;

// Listens anew on the same path; connected clients stay connected. Clients stuck in the queue of
// the dead listener are disconnected, so that they need not wait for their time to run out.
// RESOURCE_EXHAUSTED: LISTENERS_MAX are used up.
enum status listener_reopen(struct listener *l, struct error *error) MUST_CHECK;

// Whether connections wait in the queue of the current listener: for a moment that is normal, while
// nobody accepts it stays so. True where it cannot be told.
bool listener_stuck(const struct listener *l);

// After the socket is closed: removes the socket file and the lock file. Takes a zeroed one.
void listener_fini(struct listener *l);

#endif
