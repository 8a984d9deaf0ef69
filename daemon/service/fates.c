// SPDX-License-Identifier: Apache-2.0
#include "daemon/service/fates.h"

#include <stdio.h>
#include <string.h>

void fates_start(struct fates *f, const struct action *start)
{
    f->instances[start->pool] = start->instance;
}

static void fate_note(struct fates *f, const struct crew *crew, int rank)
{
    struct fate *fate = &f->list[f->next];
    f->next = (f->next + 1) % POOLS_MAX;
    *fate = (struct fate){.generation = crew->generation,
                          .implementation = crew->implementation,
                          .world_size = crew->world_size,
                          .instance = f->instances[crew->index],
                          .rank = rank};
    memcpy(fate->text, crew->ranks[rank].fate, sizeof(fate->text));
}

void fates_kill(struct fates *f, const struct action *kill, const struct crew *crew)
{
    if (kill->rank >= 0)
        fate_note(f, crew, kill->rank);
}

void fates_exit(struct fates *f, const struct crew *crew, int rank)
{
    if (!crew->killed)
        fate_note(f, crew, rank);
    for (struct fate *fate = f->list; fate < f->list + POOLS_MAX; fate++)
        if (fate->generation == crew->generation && fate->rank == rank && !fate->text[0])
            memcpy(fate->text, crew->ranks[rank].fate, sizeof(fate->text));
}

// The last one of the pool.
static const struct fate *fate_of(const struct fates *f, const struct wire_pool *pool)
{
    const struct fate *last = NULL;
    for (const struct fate *fate = f->list; fate < f->list + POOLS_MAX; fate++)
        if (fate->text[0] && fate->implementation == pool->guest &&
            fate->world_size == pool->world_size && fate->instance == pool->instance &&
            (!last || fate->generation > last->generation))
            last = fate;
    return last;
}

void fates_tell(const struct fates *f, struct wire_pool *pools, int count)
{
    for (int i = 0; i < count; i++) {
        char exited[64], killed[64];
        const struct fate *fate = fate_of(f, &pools[i]);
        if (!fate)
            continue;
        snprintf(exited, sizeof(exited), "rank %d exited", fate->rank);
        snprintf(killed, sizeof(killed), "rank %d was killed from outside", fate->rank);
        if (strcmp(pools[i].last_failure, exited) == 0 ||
            strcmp(pools[i].last_failure, killed) == 0)
            snprintf(pools[i].last_failure, sizeof(pools[i].last_failure), "rank %d %s%s",
                     fate->rank, strncmp(fate->text, "killed", 6) == 0 ? "was " : "", fate->text);
    }
}
