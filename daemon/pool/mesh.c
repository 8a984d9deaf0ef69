// SPDX-License-Identifier: Apache-2.0
#include "daemon/pool/mesh.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/plural.h"

static int *mesh_end(const struct mesh *m, int rank, int peer)
{
    return &m->ends[(size_t)rank * (size_t)m->world_size + (size_t)peer];
}

enum status mesh_init(struct mesh *m, int world_size, const bool *here, struct error *error)
{
    size_t count = (size_t)world_size * (size_t)world_size;
    int inside = 0;
    m->world_size = world_size;
    for (int rank = 0; rank < world_size; rank++) {
        m->here[rank] = !here || here[rank];
        inside += m->here[rank];
    }
    m->lacks = inside * (world_size - inside);
    m->ends = malloc(count * sizeof(*m->ends));
    if (!m->ends)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for a mesh of %d rank%s",
                         world_size, plural(world_size));
    for (size_t i = 0; i < count; i++)
        m->ends[i] = -1;
    return STATUS_OK;
}

bool mesh_put(struct mesh *m, int rank, int peer, int fd)
{
    if (rank < 0 || rank >= m->world_size || peer < 0 || peer >= m->world_size || !m->here[rank] ||
        m->here[peer] || *mesh_end(m, rank, peer) >= 0)
        return false;
    *mesh_end(m, rank, peer) = fd;
    m->lacks--;
    return true;
}

int mesh_lacks(const struct mesh *m)
{
    return m->lacks;
}

enum status mesh_open(struct mesh *m, int rank, struct error *error)
{
    for (int peer = rank + 1; peer < m->world_size; peer++) {
        if (!m->here[peer])
            continue;
        int pair[2] = {-1, -1};
        int result = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
        int *mine = mesh_end(m, rank, peer), *theirs = mesh_end(m, peer, rank);
        *mine = pair[0];
        *theirs = pair[1];
        if (result != 0)
            return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                             "no socket between ranks %d and %d of %d: %s", rank, peer,
                             m->world_size, strerror(errno));
    }
    return STATUS_OK;
}

const int *mesh_row(const struct mesh *m, int rank)
{
    return mesh_end(m, rank, 0);
}

void mesh_close(struct mesh *m, int rank)
{
    for (int peer = 0; m->ends && peer < m->world_size; peer++) {
        int *end = mesh_end(m, rank, peer);
        if (*end >= 0)
            close(*end);
        *end = -1;
    }
}

void mesh_fini(struct mesh *m)
{
    for (int rank = 0; m->ends && rank < m->world_size; rank++)
        mesh_close(m, rank);
    free(m->ends);
    m->ends = NULL;
}

int mesh_descriptors(int world_size)
{
    // While rank r is started, the ends of ranks >= r to ranks <= r are open: at most
    // (r + 1) * (n - r). Each rank also has a channel, stderr and a pidfd; a few more descriptors
    // are open for a short time.
    int half = (world_size + 1) / 2;
    return (half + 1) * (world_size - half + 1) + world_size + 3 * world_size + 16;
}
