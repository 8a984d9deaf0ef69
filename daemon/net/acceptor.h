// SPDX-License-Identifier: Apache-2.0
// Accepts the connections of a listening socket, one per round of the loop. If the system has no
// descriptor or memory for a connection, the acceptor logs this once and pauses for a quarter of a
// second; connections wait in the kernel's queue.
#ifndef CPATTN_DAEMON_NET_ACCEPTOR_H
#define CPATTN_DAEMON_NET_ACCEPTOR_H

#include <ev.h>
#include <stdbool.h>
#include <sys/socket.h>

// Called for each accepted connection. The handler owns `fd`, which is non-blocking and
// close-on-exec. `from` is the peer's address.
typedef void acceptor_handler(void *context, int fd, const struct sockaddr_storage *from,
                              socklen_t size);

struct acceptor {
    struct ev_loop *loop;
    const char *port; // for the log
    ev_io readable;
    ev_timer again; // ends a pause
    bool refused;   // the system has refused a connection since the last one was accepted
    acceptor_handler *handler;
    void *context;
};

// Borrows the listening socket `fd`, which must be non-blocking, and the name of its port in the
// log. `acceptor` must not move.
void acceptor_start(struct acceptor *acceptor, struct ev_loop *loop, const char *port, int fd,
                    acceptor_handler *handler, void *context);

// Accepts a zeroed struct and an acceptor that is already stopped.
void acceptor_stop(struct acceptor *acceptor);

#endif
