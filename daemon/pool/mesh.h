// SPDX-License-Identifier: Apache-2.0
// The mesh of a pool: a stream socket between each two of its ranks, so that a dead rank is an end
// of file to its peers and nothing is left behind.
#ifndef CPATTN_DAEMON_POOL_MESH_H
#define CPATTN_DAEMON_POOL_MESH_H

#include "common/status.h"

struct mesh {
    int world_size;
    int *ends; // [world_size][world_size]: end that row's rank gets for its peer; -1 none
};

enum status mesh_init(struct mesh *m, int world_size, struct error *error) MUST_CHECK;

// Makes the sockets of `rank` that are not there yet, those to higher ranks. Called for ranks in
// ascending order with mesh_close() after each, far fewer are open at once than the mesh has.
enum status mesh_open(struct mesh *m, int rank, struct error *error) MUST_CHECK;

// The ends that `rank` gets, one for each peer, -1 for itself; valid until mesh_close().
const int *mesh_row(const struct mesh *m, int rank);

// Closes this process's copies of the ends of `rank`.
void mesh_close(struct mesh *m, int rank);

// Closes what is open. Takes a zeroed one.
void mesh_fini(struct mesh *m);

// Descriptors that starting and keeping a world of this size takes at most at once.
int mesh_descriptors(int world_size);

#endif
