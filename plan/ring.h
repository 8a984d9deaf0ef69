// SPDX-License-Identifier: Apache-2.0
// The ring: keys and values go round among teams of ranks, queries stay.
//
// Forward, step i of n: the rank attends the KV of the team i places before its own and hands it on
// to the next team meanwhile. Its own comes first, so that the first exchange is hidden, too. Two
// slots take turns: one is attended and sent, the other receives.
//
// Backward runs the other way round: step i takes the KV of the team i + 1 places behind, beginning
// with what the last forward step has left in its slot and ending with the own, which is at hand.
// So KV travels n - 2 hops. The sum of dK, dV of a team starts at its predecessor and goes one hop
// a step behind its KV, in fp32; the last of n - 1 hops brings it home while the own part is
// computed.
#ifndef CPATTN_PLAN_RING_H
#define CPATTN_PLAN_RING_H

#include "plan/part.h"

struct ring {
    struct part *part;
    int size, index, place;  // teams in the ring, the own one's number, the rank's place in it
    int next, previous;      // ranks
    int32_t kv;              // buffer of the own team's keys and values
    int32_t slot[2];         // those of others
    int32_t sum[2], arrived; // dK, dV
};

// `kv` holds the own team's keys and values for the part's heads. Borrows the part.
void ring_init(struct ring *r, struct part *part, int32_t kv);
void ring_forward(const struct ring *r);
// Returns where the complete dK, dV of the own team's tokens lie, in fp32.
struct pair ring_backward(const struct ring *r);

#endif
