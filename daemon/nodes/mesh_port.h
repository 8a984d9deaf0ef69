// SPDX-License-Identifier: Apache-2.0
// Connects ranks of this host with ranks of other hosts: a TCP socket for each pair, which the
// hosts establish and pass to their ranks. The host with the higher number connects and presents
// the key of the pool. A connection without a known key is closed. The data of ranks on these
// sockets is not encrypted. All calls on the loop's thread.
#ifndef CPATTN_DAEMON_NODES_MESH_PORT_H
#define CPATTN_DAEMON_NODES_MESH_PORT_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/limits.h"
#include "common/status.h"
#include "daemon/nodes/node_wire.h"

// Maximum number of connections that have not sent a hello, or whose pool is not known yet; beyond
// it the oldest is closed.
#define MESH_STRANGERS_MAX 2048
// Time limit for the hello, and for the pool to become known.
#define MESH_STRANGER_S    5.

struct mesh_port;

struct mesh_handler {
    void *context;
    // A socket from `rank` on this host to `peer`. The handler owns it.
    void (*connected)(void *context, int pool, uint32_t generation, int rank, int peer, int fd);
    // A socket could not be connected.
    void (*failed)(void *context, int pool, uint32_t generation, const struct error *error);
};

// Listens on a numeric address (NULL: all) and port (0: any free port). UNAVAILABLE.
enum status mesh_port_create(struct ev_loop *loop, const char *address, int port,
                             const struct mesh_handler *handler, struct mesh_port **created,
                             struct error *error) MUST_CHECK;
void mesh_port_destroy(struct mesh_port *p); // accepts NULL

int mesh_port_number(const struct mesh_port *p);

// Connects the ranks of a START on host start->host with all others. `daemon` is used in place of
// an empty address; NULL: no address is empty. May call the handler.
void mesh_port_meet(struct mesh_port *p, const struct node_start *start,
                    const struct sockaddr_storage *daemon);

// Closes the unfinished connections of a pool. No effect if the pool is not known.
void mesh_port_part(struct mesh_port *p, uint32_t generation);

#endif
