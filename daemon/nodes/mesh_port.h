// SPDX-License-Identifier: Apache-2.0
// Connects ranks of this host with ranks of others: a TCP socket for each pair, which the hosts
// establish and hand down to their ranks. The host with the higher number dials and presents the
// key of the pool. A connection without a known key is dropped. What ranks send over these sockets
// is not encrypted. All calls on the loop's thread.
#ifndef CPATTN_DAEMON_NODES_MESH_PORT_H
#define CPATTN_DAEMON_NODES_MESH_PORT_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/limits.h"
#include "common/status.h"
#include "daemon/nodes/node_wire.h"

// Connections that have not presented what they are here for, or whose pool is not known yet; the
// oldest makes room.
#define MESH_STRANGERS_MAX 2048
// For both.
#define MESH_STRANGER_S    5.

struct mesh_port;

struct mesh_handler {
    void *context;
    // A socket from `rank`, which is here, to `peer`. The handler owns it.
    void (*connected)(void *context, int pool, uint32_t generation, int rank, int peer, int fd);
    // A socket cannot be made.
    void (*failed)(void *context, int pool, uint32_t generation, const struct error *error);
};

// Listens; `address` is numeric, NULL: all. Port 0: any that is free. UNAVAILABLE.
enum status mesh_port_create(struct ev_loop *loop, const char *address, int port,
                             const struct mesh_handler *handler, struct mesh_port **created,
                             struct error *error) MUST_CHECK;
void mesh_port_destroy(struct mesh_port *p); // takes NULL

int mesh_port_number(const struct mesh_port *p);

// Connects the ranks of a START that are on host start->host with all others. `daemon`: replaces an
// empty address; NULL: there is none. May call the handler.
void mesh_port_meet(struct mesh_port *p, const struct node_start *start,
                    const struct sockaddr_storage *daemon);

// Forgets a pool. Does nothing if it is not known.
void mesh_port_part(struct mesh_port *p, uint32_t generation);

#endif
