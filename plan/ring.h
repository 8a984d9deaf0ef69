// SPDX-License-Identifier: Apache-2.0
// The ring: keys and values go round among teams of ranks; queries stay in place.
//
// Forward, step i of n: the team attends the KV of the team i places before its own, which arrived
// during the previous step. A team attends its own KV first, which also hides the first exchange.
// Two slots alternate: one is attended and sent on, the other receives.
//
// Backward runs in the opposite direction: step i attends the KV of the team i + 1 places after its
// own. It begins with the two KV that the forward left in the slots, and ends with the team's own
// KV. The fp32 sum of a team's dK, dV starts at its predecessor and follows its KV. The last hop
// returns it to the team, while the team computes its own contribution. KV and sums use separate
// exchanges, so that the next KV waits for no sum.
//
// A team receives only KV that its queries see: from its neighbour in the ring if the neighbour
// attends it, else from the owner. Sums skip teams that add nothing. Exchanges that move nothing
// are left out.
#ifndef CPATTN_PLAN_RING_H
#define CPATTN_PLAN_RING_H

#include "plan/part.h"
#include "plan/sight.h"

struct ring {
    struct part *part;
    int size, index, place;     // number of teams; the own team; the rank's place in its team
    struct sight sight;         // the teams whose keys each team sees
    struct sight adders;        // the teams to whose dK, dV each team adds
    int32_t kv;                 // buffer of the own team's keys and values
    int32_t slot[2];            // buffers of other teams' keys and values
    int32_t sum[2], arrived;    // buffers of fp32 dK, dV: two sums; a received sum
    int sum_of[WORLD_SIZE_MAX]; // by source team: index in `sum`
};

// `kv` holds the own team's keys and values for the part's heads. Borrows the part.
void ring_init(struct ring *r, struct part *part, int32_t kv);
void ring_forward(const struct ring *r);
// Returns the complete dK, dV of the own team's tokens, in fp32.
struct pair ring_backward(const struct ring *r);

#endif
