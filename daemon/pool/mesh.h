// SPDX-License-Identifier: Apache-2.0
// The mesh of a pool: a stream socket between each pair of ranks. Peers see the death of a rank as
// an end of file, and nothing remains after the ranks.
#ifndef CPATTN_DAEMON_POOL_MESH_H
#define CPATTN_DAEMON_POOL_MESH_H

#include "common/status.h"

struct mesh {
    int world_size;
    int *ends; // [world_size][world_size]: end that row's rank gets for its peer; -1 none
};

enum status mesh_init(struct mesh *m, int world_size, struct error *error) MUST_CHECK;

// Creates the sockets of `rank` to higher ranks. Call it in ascending order, with mesh_close()
// after each rank, to keep few sockets open at once.
enum status mesh_open(struct mesh *m, int rank, struct error *error) MUST_CHECK;

// The sockets of `rank`, one for each peer, -1 for itself; valid until mesh_close().
const int *mesh_row(const struct mesh *m, int rank);

// Closes this process's copies of the ends of `rank`.
void mesh_close(struct mesh *m, int rank);

// Closes what is open. Takes a zeroed one.
void mesh_fini(struct mesh *m);

// Maximum number of descriptors that are open at once to start and keep a world of this size.
int mesh_descriptors(int world_size);

#endif
