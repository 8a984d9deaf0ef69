// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/actions.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"

bool actions_init(struct actions *a, int jobs)
{
    memset(a, 0, sizeof(*a));
    // An ANSWER for each job; START, RUN, KILL and STUCK for each pool; EXIT.
    a->capacity = jobs + 4 * POOLS_MAX + 1;
    a->ring = calloc((size_t)a->capacity, sizeof(*a->ring));
    return a->ring;
}

void actions_fini(struct actions *a)
{
    free(a->ring);
    memset(a, 0, sizeof(*a));
}

void actions_push(struct actions *a, const struct action *action)
{
    assert(a->count < a->capacity);
    a->ring[(a->first + a->count++) % a->capacity] = *action;
}

bool actions_pop(struct actions *a, struct action *action)
{
    if (a->count == 0)
        return false;
    *action = a->ring[a->first];
    a->first = (a->first + 1) % a->capacity;
    a->count--;
    return true;
}
