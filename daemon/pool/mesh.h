// SPDX-License-Identifier: Apache-2.0
// The mesh of a pool: a stream socket between each pair of ranks. The sockets close when a rank
// dies, which its peers see as an end of file. The caller provides the sockets to ranks on other
// hosts.
#ifndef CPATTN_DAEMON_POOL_MESH_H
#define CPATTN_DAEMON_POOL_MESH_H

#include <stdbool.h>

#include "common/limits.h"
#include "common/status.h"

struct mesh {
    int world_size;
    bool here[WORLD_SIZE_MAX]; // true: the rank is on this host
    int lacks;                 // missing sockets to ranks on other hosts
    int *ends; // [world_size][world_size]: row `rank` has its ends, one for each peer; -1: none
};

// `here`: true for ranks on this host; NULL: all.
enum status mesh_init(struct mesh *m, int world_size, const bool *here,
                      struct error *error) MUST_CHECK;

// Takes over the socket from `rank` on this host to `peer` on another. False: the pair has a socket
// already, or is not such a pair; the caller keeps the socket.
bool mesh_put(struct mesh *m, int rank, int peer, int fd);

// Number of missing sockets to ranks on other hosts.
int mesh_lacks(const struct mesh *m);

// Creates the sockets of `rank` to higher ranks on this host. Call it for ascending ranks, with
// mesh_close() after each, so that few sockets are open at once.
enum status mesh_open(struct mesh *m, int rank, struct error *error) MUST_CHECK;

// The sockets of `rank`, one for each peer, -1 for itself; valid until mesh_close().
const int *mesh_row(const struct mesh *m, int rank);

// Closes this process's copies of the ends of `rank`.
void mesh_close(struct mesh *m, int rank);

// Closes all sockets. Accepts a zeroed struct.
void mesh_fini(struct mesh *m);

// Maximum number of descriptors that are open at once to start and keep a world of this size.
int mesh_descriptors(int world_size);

#endif
