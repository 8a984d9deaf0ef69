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
    int place;                          // the rank's place in the team
    struct heads heads[WORLD_SIZE_MAX]; // by member: its heads in this deal
    int32_t kv;                         // keys and values of the team for the part's heads
    struct region out, dq;              // dtype, before they are returned
    int32_t dkv;                        // the same, where no dK and dV are summed up at home
    int32_t home[WORLD_SIZE_MAX];       // else by member: its dK, dV (fp32) of the own tokens
    struct team_block *blocks[2];       // by side: `block_count` blocks of each member
    int block_count[2];
    // Of the exchange that is being built: what goes to other ranks, and what stays on this one.
    struct transfer *transfers, *copies;
    int transfer_count, copy_count;
};

// Initializes deal i of n, each of a part of the team's heads. Borrows the tensors. False: out of
// memory.
bool deal_init(struct deal *d, struct builder *b, const struct tensors *t, struct team team, int i,
               int n);

void deal_forward_in(struct deal *d);  // Q, K, V
void deal_forward_out(struct deal *d); // O in dtype and LSE, after the part's forward
void deal_backward_in(struct deal *d); // dO
// Returns dQ, and dkv (fp32, of the team's tokens). Where each key head is in one deal of one
// member, all in dtype. Else the contributions to dkv are added, member by member, to `sum`: all
// key heads of the own tokens, fp32.
void deal_backward_out(struct deal *d, struct pair dkv, struct pair sum);

// Creates the buffer of that sum, filled with 0. Empty if nothing is summed up.
struct pair deal_sum_begin(struct builder *b, const struct tensors *t, struct team team);
// Converts it to dK and dV.
void deal_sum_end(struct builder *b, const struct tensors *t, struct pair sum);

#endif
