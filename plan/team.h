// SPDX-License-Identifier: Apache-2.0
// A team: consecutive ranks that exchange heads among themselves; each then has the tokens of all
// members with some of the heads. A team of one rank exchanges nothing.
//
// The tokens of a team are laid out as on one rank: the chunks of all members in the order of
// positions, sequence by sequence. With many different sequences this would take too many
// transfers; then the tokens are stored member by member, each as in its own tensor. Member m of n
// computes the query heads [m*h/n, (m+1)*h/n) (integer division) with the key heads that they use.
// A key head may go to several members, and a member may have no heads.
#ifndef CPATTN_PLAN_TEAM_H
#define CPATTN_PLAN_TEAM_H

#include "plan/plan.h"
#include "plan/shard.h"

struct team {
    int first, size; // ranks [first, first + size)
};

// Number of ranks in a team with the case's comm. With COMM_AUTO it is the
// greatest common divisor of case_ranks_per_node() and kv_heads: a team is inside one host, and its
// ranks have as many key heads each.
int team_size(const struct cp_case *c);

// The case's comm, or what COMM_AUTO stands for.
enum case_comm team_comm(const struct cp_case *c);

// The team of `size` ranks that contains the rank; size divides the world size.
struct team team_of(int rank, int size);

// Number of groups of heads that are exchanged one after the other, if all ranks are one team.
#define TEAM_GROUPS_MAX 4
int team_groups(const struct cp_case *c);

struct heads team_heads(const struct cp_case *c, int size, int member);

// Part `i` of `count` of the heads; no key head is in two parts.
struct heads heads_part(const struct cp_case *c, struct heads heads, int i, int count);

int64_t team_rows(const struct cp_case *c, enum shard_side side, struct team team);

// Number of rows of the members before this one.
int64_t team_row_base(const struct cp_case *c, enum shard_side side, struct team team, int member);

// Largest team_rows() of all teams of this size.
int64_t team_rows_max(const struct cp_case *c, enum shard_side side, int size);

// True if a team's tokens are stored in the order of positions.
#define TEAM_SEQUENCES_MAX 16 // that are not alike
bool team_in_order(const struct cp_case *c, int size);

// A block of rows of a member that is consecutive in its own tensor and in the team's tensor. It
// occurs `repeats` times, each own_step and team_step rows further.
struct team_block {
    int64_t own, team; // the first row of each
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

// Fills in the spans of the team's tokens, sequence by sequence, in memory order. Rows, also of the
// bias, are those of the team's tensor. `spans` has room for team.size * shard_spans_max(). Returns
// their number.
int team_spans(const struct cp_case *c, enum shard_side side, struct team team, struct span *spans);

#endif
