// SPDX-License-Identifier: Apache-2.0
// Deal: the head exchange (all-to-all) of a team. Before it a rank has its own tokens with all
// heads; after it the team's tokens with its own heads. A second exchange returns the results.
//
// Each rank sends a subset of heads of its rows, chunk by chunk. The receiver stores them in the
// order of positions, so that it attends whole sequences as one process does.
#ifndef CPATTN_PLAN_DEAL_H
#define CPATTN_PLAN_DEAL_H

#include "plan/part.h"

struct deal {
    struct part part;
    const struct tensors *tensors;
    int place;                          // the rank's index in the team
    struct heads heads[WORLD_SIZE_MAX]; // by member: its heads in this deal
    int32_t kv;                         // buffer of the team's keys and values for the part's heads
    struct region out, dq;              // dtype, of the team's tokens, before they are sent back
    // Buffers of dK, dV. If no key head is shared by members: dkv, in dtype, of the team's tokens.
    // Else by member: its contribution to the own tokens, fp32.
    int32_t dkv;
    int32_t home[WORLD_SIZE_MAX];
    struct team_block *blocks[2]; // by side: `block_count` blocks of each member
    int block_count[2];
    // The exchange that is being built: messages to and from other ranks, copies on this rank.
    struct transfer *transfers, *copies;
    int transfer_count, copy_count;
};

// Initializes deal i of n. Each deal has a part of the heads of every member. Borrows the tensors.
// False: out of memory.
bool deal_init(struct deal *d, struct builder *b, const struct tensors *t, struct team team, int i,
               int n);

void deal_forward_in(struct deal *d);  // Q, K, V
void deal_forward_out(struct deal *d); // O in dtype and LSE, after the part's forward
void deal_backward_in(struct deal *d); // dO
// Sends dQ (in dtype) and dkv (fp32, of the team's tokens) to the owners of the tokens. If no key
// head is shared by members, dkv is sent in dtype. Else it is sent in fp32, and the owner adds the
// contributions, member by member, to `sum`: all key heads of its own tokens, fp32.
void deal_backward_out(struct deal *d, struct pair dkv, struct pair sum);

// Creates `sum` of deal_backward_out(), filled with 0. Empty if no key head is shared.
struct pair deal_sum_begin(struct builder *b, const struct tensors *t, struct team team);
// Converts `sum` to dK and dV, unless it is empty.
void deal_sum_end(struct builder *b, const struct tensors *t, struct pair sum);

#endif
