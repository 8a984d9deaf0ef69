// SPDX-License-Identifier: Apache-2.0
// The order of a team's tokens in its tensor.
//
// The tokens of a team are laid out as on one rank: the chunks of all members in the order of
// positions, sequence by sequence. With many different sequences this would take too many
// transfers; then the tokens are stored member by member, each as in its own tensor.
#ifndef CPATTN_PLAN_TEAM_ORDER_H
#define CPATTN_PLAN_TEAM_ORDER_H

#include "plan/team.h"

// True if a team's tokens are stored in the order of positions.
#define TEAM_SEQUENCES_MAX 16 // unless shard_is_alike()
bool team_in_order(const struct cp_case *c, int size);

// A block of rows of a member that is consecutive in its own tensor and in the team's tensor. It
// occurs `repeats` times, each own_step and team_step rows further.
struct team_block {
    int64_t own, team; // first row in the member's and in the team's tensor
    int64_t rows;
    int64_t repeats, own_step, team_step;
};

// Fills in the blocks of all rows of a member, in the same order for all members. Returns their
// number, at most TEAM_BLOCKS_MAX.
#define TEAM_BLOCKS_MAX (2 * TEAM_SEQUENCES_MAX)
int team_blocks(const struct cp_case *c, enum shard_side side, struct team team, int member,
                struct team_block *blocks);

// Upper bound of the slices of a team's queries with the keys of one team.
int64_t team_slices_bound(const struct cp_case *c, int size);

// Fills in the spans of the team's tokens, sequence by sequence, in memory order. `row` and
// `bias_row` of a span are rows of the team's tensors. `spans` has room for team.size *
// shard_spans_max(). Returns their number.
int team_spans(const struct cp_case *c, enum shard_side side, struct team team, struct span *spans);

#endif
