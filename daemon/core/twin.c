// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/twin.h"

#include "daemon/core/state.h"

bool twin_is_up(const struct pool *pool)
{
    return pool->mode == MODE_STARTING || pool->mode == MODE_IDLE || pool->mode == MODE_RUNNING ||
           pool->mode == MODE_SUSPECT;
}

bool twin_stands_by(const struct pool *pool)
{
    const struct pool *twin = pool->twin;
    return twin && twin_is_up(pool) && twin_is_up(twin) && twin->generation < pool->generation;
}

bool twin_leads(const struct pool *pool)
{
    bool twin_up = pool->twin && twin_is_up(pool->twin);
    return twin_is_up(pool) ? !twin_stands_by(pool) : !twin_up;
}

static bool is_resting(const struct pool *pool)
{
    return pool->mode == MODE_BACKOFF;
}

bool twin_rests(const struct pool *pool)
{
    const struct pool *twin = pool->twin;
    return is_resting(pool) || (twin && is_resting(twin) && !twin->as_spare);
}

bool twin_hands_over(const struct pool *pool)
{
    const struct pool *twin = pool->twin;
    return twin && twin->mode == MODE_STOPPING && twin->leased;
}
