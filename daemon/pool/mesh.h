// SPDX-License-Identifier: Apache-2.0
// The mesh of a pool: a stream socket between each pair of ranks. Peers see the death of a rank as
// an end of file, and the sockets end with the ranks. The caller provides sockets to ranks of other
// hosts.
#ifndef CPATTN_DAEMON_POOL_MESH_H
#define CPATTN_DAEMON_POOL_MESH_H

#include <stdbool.h>

#include "common/limits.h"
#include "common/status.h"

struct mesh {
    int world_size;
    bool here[WORLD_SIZE_MAX];
    int lacks; // number of missing sockets to ranks of other hosts
    int *ends; // [world_size][world_size]: the end of the row's rank for each peer; -1: none
};

// `here`: true for ranks on this host; NULL: all.
enum status mesh_init(struct mesh *m, int world_size, const bool *here,
                      struct error *error) MUST_CHECK;

// Takes over the socket of `rank` on this host to `peer` on another. False: the pair has a socket
// or is not such a pair, or no descriptor is left; the caller keeps the socket.
bool mesh_put(struct mesh *m, int rank, int peer, int fd);

// Number of sockets to ranks of other hosts that are still missing.
int mesh_lacks(const struct mesh *m);

// Creates the sockets of `rank` to higher ranks of this host. Call it in ascending order, with
// mesh_close() after each rank, to keep few sockets open at once.
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
