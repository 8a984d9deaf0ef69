// SPDX-License-Identifier: Apache-2.0
// The socket file of the daemon: lock, listen, and listen anew when the listener has died.
//
// nng up to 1.5 stops taking connections for good when a peer closes in the middle of the handshake
// (its EPIPE is mistaken for "listener closed"). The transport below goes on to accept and greet,
// so a client believes to be connected, but nobody reads what it sends. A probe notices, and
// listener_reopen() starts one more listener on the same socket. The dead one stays open while it
// has clients that are served, because closing it would reset them.
//
// A listener is bound to a name of its own, which is then moved to the path: at no time does the
// path lead nowhere, and closing an old listener, which unlinks the name it was bound to, does not
// harm a newer one.
#ifndef CPATTN_DAEMON_IO_LISTENER_H
#define CPATTN_DAEMON_IO_LISTENER_H

#include <nng/nng.h>
#include <stdint.h>
#include <sys/un.h>

#include "common/status.h"

// Listeners open at once; more than one only while a dead one has clients.
#define LISTENERS_MAX 33

// The library never gives back the descriptors of a dead listener and of the clients that it kept
// waiting. When so many are lost, a restart is due.
#define LISTENER_LOST_MAX 512

// Of the name that a listener is bound to, with its NUL: the path and one more character.
#define LISTENER_NAME_MAX ((int)sizeof(((struct sockaddr_un *)0)->sun_path))
#define LISTENER_PATH_MAX (LISTENER_NAME_MAX - 1)

struct orphan {
    int fd;
    uint64_t inode;
    int unread;
};
#define ORPHANS_MAX 1024

struct listener {
    nng_socket socket;
    char path[LISTENER_PATH_MAX];
    int lock_fd;
    nng_listener open[LISTENERS_MAX]; // the last is the one that serves
    int count;
    struct orphan *orphans; // [ORPHANS_MAX], suspects of the last sweep; NULL before the first
    int orphan_count;
};

// Takes the lock file beside the path, so that no other daemon is disturbed, and removes a socket
// file that a killed one left. INVALID_ARGUMENT: the path is too long or no socket;
// FAILED_PRECONDITION: another daemon serves it; UNAVAILABLE: the system refused.
enum status listener_init(struct listener *l, const char *path, struct error *error) MUST_CHECK;

// Starts listening, mode 0660.
enum status listener_open(struct listener *l, nng_socket socket, struct error *error) MUST_CHECK;

// Listens anew on the same path; connected clients stay connected. `connections`: those that are
// served. RESOURCE_EXHAUSTED: LISTENERS_MAX are open, or LISTENER_LOST_MAX descriptors are lost.
enum status listener_reopen(struct listener *l, int connections, struct error *error) MUST_CHECK;

// Closes listeners that are not the last and have no clients that are served; `clients` tells how
// many a listener has. Clients that it has kept waiting learn of it at once.
void listener_reclaim(struct listener *l, int (*clients)(void *context, int listener),
                      void *context);

// After a listener has died: disconnects clients that it has accepted and nobody reads, so that
// they learn of it at once. They show by bytes that stay unread, or by an end that stays unnoticed,
// from one sweep to the next, so sweeps have to be a second apart or more, and the server able to
// receive. (The library keeps the descriptor numbers until its end and spins on connections whose
// peer is gone, which this ends too.) Returns how many were disconnected.
int listener_sweep(struct listener *l);

// After the socket is closed: removes the socket file and the lock file. Takes a zeroed one.
void listener_fini(struct listener *l);

#endif
