// SPDX-License-Identifier: Apache-2.0
// Connects ranks of this host with ranks of other hosts: one TCP socket for each pair. Daemon and
// agents establish the sockets and pass them to their ranks. The host with the higher number
// connects and presents the key of the pool. A connection with a wrong key is closed. The ranks'
// data on these sockets is not encrypted. All calls on the loop's thread.
#ifndef CPATTN_DAEMON_NODES_MESH_PORT_H
#define CPATTN_DAEMON_NODES_MESH_PORT_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/limits.h"
#include "common/status.h"
#include "daemon/nodes/node_wire.h"

// Maximum number of incoming connections that have not sent a hello, or whose pool is not known
// yet; beyond it the oldest is closed.
#define MESH_STRANGERS_MAX 2048
// Time limit in seconds of an incoming connection, for its hello and its pool to become known, and
// of an outgoing one until its hello is answered.
#define MESH_STRANGER_S    5.

struct mesh_port;

struct mesh_handler {
    void *context;
    // A socket from `rank` on this host to `peer` is connected. The handler owns `fd`.
    void (*connected)(void *context, int pool, uint32_t generation, int rank, int peer, int fd);
    // A socket of the pool could not be connected. The pool's other unfinished ones are closed.
    void (*failed)(void *context, int pool, uint32_t generation, const struct error *error);
};

// Listens on a numeric address (NULL: all) and port (0: any free port). UNAVAILABLE.
enum status mesh_port_create(struct ev_loop *loop, const char *address, int port,
                             const struct mesh_handler *handler, struct mesh_port **created,
                             struct error *error) MUST_CHECK;
void mesh_port_destroy(struct mesh_port *p); // accepts NULL

// The number of the port that it listens on.
int mesh_port_number(const struct mesh_port *p);

// Begins to connect the ranks of a START that are on host start->host with all others. `daemon`
// replaces an empty address; NULL: no address is empty. May call the handler.
void mesh_port_meet(struct mesh_port *p, const struct node_start *start,
                    const struct sockaddr_storage *daemon);

// Closes the unfinished connections of a pool. No effect if the pool is not known.
void mesh_port_part(struct mesh_port *p, uint32_t generation);

#endif
