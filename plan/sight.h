// SPDX-License-Identifier: Apache-2.0
// For each team, the teams whose keys its queries see: the keys that an algorithm must send to it.
#ifndef CPATTN_PLAN_SIGHT_H
#define CPATTN_PLAN_SIGHT_H

#include "plan/case.h"

// Bit s of teams[t]: some query of team t sees some key of team s.
struct sight {
    uint64_t teams[WORLD_SIZE_MAX];
};

// For all teams of `size` consecutive ranks; size divides the world size.
void sight_init(struct sight *sight, const struct cp_case *c, int size);

static inline bool sight_has(const struct sight *sight, int team, int source)
{
    return sight->teams[team] >> source & 1;
}

#endif
