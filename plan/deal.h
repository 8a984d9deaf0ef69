// SPDX-License-Identifier: Apache-2.0
// Dealing heads: the exchange by which a team turns own tokens with all heads into all its tokens
// with own heads, and back. It brings a part its operands and takes its results home.
//
// A rank sends some heads of its rows, chunk by chunk, and these arrive in the order of positions,
// so that whole sequences are attended as in one process; results take the same way back.
#ifndef CPATTN_PLAN_DEAL_H
#define CPATTN_PLAN_DEAL_H

#include "plan/part.h"

struct deal {
    struct part part;
    const struct tensors *tensors;
    int place;                          // of the rank in the team
    struct heads heads[WORLD_SIZE_MAX]; // by member: those of this deal
    int32_t kv;                         // keys and values of the team for the part's heads
    struct region out, dq;              // dtype, before they go home
    int32_t home[WORLD_SIZE_MAX];       // by member: its dK, dV (fp32) of the own tokens
    struct team_block *blocks[2];       // by side: of each member, `block_count` of them
    int block_count[2];
    struct transfer *transfers; // being gathered
    int transfer_count;
};

// Deal number i of n of the team's heads. Borrows the tensors. False when memory is short.
bool deal_init(struct deal *d, struct builder *b, const struct tensors *t, struct team team, int i,
               int n);

void deal_forward_in(struct deal *d);  // Q, K, V
void deal_forward_out(struct deal *d); // O in dtype and LSE, after the part's forward
void deal_backward_in(struct deal *d); // dO
// dQ in dtype, and dkv (fp32, of the team's tokens), whose contributions are added, member by
// member, to `sum`: all key heads of the own tokens, fp32.
void deal_backward_out(struct deal *d, struct pair dkv, struct pair sum);

// That sum: a new buffer, filled with 0.
struct pair deal_sum(struct builder *b, const struct tensors *t);

#endif
