// SPDX-License-Identifier: Apache-2.0
// A team: consecutive ranks that exchange heads with each other; each then has the tokens of all
// members with some of the heads. A team of one rank exchanges nothing.
//
// Member m of n computes the query heads [m*h/n, (m+1)*h/n) (integer division) with the key heads
// that they use. A key head may go to several members, and a member may have no heads.
#ifndef CPATTN_PLAN_TEAM_H
#define CPATTN_PLAN_TEAM_H

#include "plan/shard.h"

// A range of query heads of the case, and the range of key heads that they use.
struct heads {
    int32_t first, count;
    int32_t kv_first, kv_count;
};

struct team {
    int first, size; // ranks [first, first + size)
};

// Number of ranks in a team with the case's comm. With COMM_AUTO it is the greatest common divisor
// of case_ranks_per_node() and kv_heads, so that a team is inside one host and its ranks have
// equally many key heads.
int team_size(const struct cp_case *c);

// The case's comm; COMM_AUTO is replaced by the chosen one.
enum case_comm team_comm(const struct cp_case *c);

// The team of `size` ranks that contains the rank; size divides the world size.
struct team team_of(int rank, int size);

// Number of groups of heads that are exchanged one after the other, if all ranks are one team; else
// 1.
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

#endif
