// SPDX-License-Identifier: Apache-2.0
// The mesh of a pool: a stream socket between each pair of ranks. Peers see the death of a rank as
// an end of file, and nothing remains after the ranks. Sockets to ranks of other hosts are brought
// by the caller.
#ifndef CPATTN_DAEMON_POOL_MESH_H
#define CPATTN_DAEMON_POOL_MESH_H

#include <stdbool.h>

#include "common/limits.h"
#include "common/status.h"

struct mesh {
    int world_size;
    bool here[WORLD_SIZE_MAX];
    int lacks; // sockets to ranks of other hosts that are still to come
    int *ends; // [world_size][world_size]: end that row's rank gets for its peer; -1 none
};

// `here`: which ranks are on this host; NULL: all.
enum status mesh_init(struct mesh *m, int world_size, const bool *here,
                      struct error *error) MUST_CHECK;

// Takes over the socket of `rank`, which is here, to `peer`, which is not. False: there is one
// already, the pair is none of these, or there is no descriptor left; the socket stays the
// caller's.
bool mesh_put(struct mesh *m, int rank, int peer, int fd);

// Sockets to ranks of other hosts that mesh_put() has not brought yet.
int mesh_lacks(const struct mesh *m);

// Creates the sockets of `rank` to higher ranks of this host. Call it in ascending order, with
// mesh_close() after each rank, to keep few sockets open at once.
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
