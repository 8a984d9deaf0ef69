// SPDX-License-Identifier: Apache-2.0
// A team: consecutive ranks that deal the heads among themselves, each for the tokens of all of
// them. A team of one rank deals nothing.
//
// Tokens of a team lie as if it were one rank: the chunks of all members in the order of positions,
// sequence by sequence. Where sequences are many and not alike, so that this would take too many
// transfers, they lie member behind member, each member's as in its own tensor. Member m of a team
// of n computes the query heads [m*h/n, (m+1)*h/n) (integer division) with the key heads they use:
// a key head may go to several members, a member may have no heads.
#ifndef CPATTN_PLAN_TEAM_H
#define CPATTN_PLAN_TEAM_H

#include "plan/plan.h"
#include "plan/shard.h"

struct team {
    int first, size; // ranks [first, first + size)
};

// Ranks of a team of the case's comm.
int team_size(const struct cp_case *c);

// The team of `size` ranks that the rank belongs to; size divides the world's.
struct team team_of(int rank, int size);

// Groups of heads that one after the other come to the members, where all ranks are one team.
#define TEAM_GROUPS_MAX 4
int team_groups(const struct cp_case *c);

struct heads team_heads(const struct cp_case *c, int size, int member);

// Part `i` of `count` of the heads, cut between key heads so that no part shares one.
struct heads heads_part(const struct cp_case *c, struct heads heads, int i, int count);

int64_t team_rows(const struct cp_case *c, enum shard_side side, struct team team);

// Rows of the members before this one.
int64_t team_row_base(const struct cp_case *c, enum shard_side side, struct team team, int member);

// The largest team_rows() of any team of that size.
int64_t team_rows_max(const struct cp_case *c, enum shard_side side, int size);

// Whether a team's tokens lie in the order of positions.
#define TEAM_SEQUENCES_MAX 16 // that are not alike
bool team_in_order(const struct cp_case *c, int size);

// Rows of a member that lie one behind the other in its own tensor and in the team's; the same
// again `repeats` times, so many rows further on either side.
struct team_block {
    int64_t own, team; // the first row of each
    int64_t rows;
    int64_t repeats, own_step, team_step;
};

// All rows of a member, the blocks of all members in the same order. Returns how many blocks;
// TEAM_BLOCKS_MAX is room for them.
#define TEAM_BLOCKS_MAX (2 * TEAM_SEQUENCES_MAX)
int team_blocks(const struct cp_case *c, enum shard_side side, struct team team, int member,
                struct team_block *blocks);

// Most slices of the queries of a team of `size` ranks with the keys of one.
int64_t team_slices_bound(const struct cp_case *c, int size);

// Spans of the team's tokens, sequence by sequence, in the order of memory; rows are the team's,
// those of the bias too.
// Room for team.size * shard_spans_max() is needed. Returns how many.
int team_spans(const struct cp_case *c, enum shard_side side, struct team team, struct span *spans);

#endif
