// SPDX-License-Identifier: Apache-2.0
// The ring: keys and values go round among teams of ranks, queries stay.
//
// Forward, step i of n: the team attends the KV of the team i places before its own, which comes in
// during the step before. Its own comes first, so that the first exchange is hidden, too. Two slots
// take turns: one is attended and handed on, the other receives.
//
// Backward runs the other way round: step i takes the KV of the team i + 1 places behind, beginning
// with the two that the forward has left in its slots and ending with the own, which is at hand.
// The sum of dK, dV of a team starts at its predecessor and follows its KV, in fp32; the last hop
// brings it home while the own part is computed. KV and sums go in exchanges of their own, so that
// the next KV waits for no sum.
//
// A team gets only KV of which its queries see something: from its neighbour in the ring, where
// that has had it, else from the owner. Sums go from one team that adds to them to the next.
// Exchanges in which nothing moves are left out.
#ifndef CPATTN_PLAN_RING_H
#define CPATTN_PLAN_RING_H

#include "plan/part.h"
#include "plan/sight.h"

struct ring {
    struct part *part;
    int size, index, place;     // teams in the ring, the own one's number, the rank's place in it
    struct sight sight;         // who sees whose keys
    struct sight adders;        // who adds to whose dK, dV
    int32_t kv;                 // buffer of the own team's keys and values
    int32_t slot[2];            // those of others
    int32_t sum[2], arrived;    // dK, dV
    int sum_of[WORLD_SIZE_MAX]; // by source: which sum
};

// `kv` holds the own team's keys and values for the part's heads. Borrows the part.
void ring_init(struct ring *r, struct part *part, int32_t kv);
void ring_forward(const struct ring *r);
// Returns where the complete dK, dV of the own team's tokens lie, in fp32.
struct pair ring_backward(const struct ring *r);

#endif
