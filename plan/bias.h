// SPDX-License-Identifier: Apache-2.0
// Layout of the bias and its gradient on a rank.
//
// The case's bias is [1 or batch][1 or heads][1 or seqlen_q][seqlen_kv]. In memory a rank has
// [heads][rows][seqlen_kv], with one head for all, or with the heads that it computes in its team
// (a guest's rank is a team of its own, whatever the comm is). The rows are
// - the rows of the team's queries, member by member, if every sequence and query has its own row;
// - the local tokens of one sequence of the team, member by member, if sequences share rows;
// - all positions, if sequences share rows and are packed (thd); the same on all ranks;
// - the sequences, or one row, if all queries share a row; the same on all ranks.
// In the first two cases a gradient belongs to the tokens of one rank, which delivers [1 or all
// heads][rows of its own tokens][seqlen_kv]. In the last two all ranks contribute to every element:
// the gradient is summed over the ranks, and rank r of P delivers elements [r*n/P, (r+1)*n/P) of
// the n elements of [1 or all heads][rows][seqlen_kv].
#ifndef CPATTN_PLAN_BIAS_H
#define CPATTN_PLAN_BIAS_H

#include "plan/team.h"

// True if the dimension is that of the case, not 1. False without a bias.
bool bias_has_batch(const struct cp_case *c);
bool bias_has_heads(const struct cp_case *c);
bool bias_has_queries(const struct cp_case *c);

// True if the gradient is summed over all ranks.
bool bias_is_whole(const struct cp_case *c);

// The team of the rank; a guest's rank is a team of its own.
struct team bias_team(const struct cp_case *c, int rank);

// The bias that a rank computes with: [heads][rows][columns]; 0 heads: none.
// head_first: the first head of the case.
struct bias_shape {
    int32_t head_first, heads;
    int64_t rows, columns;
};
struct bias_shape bias_shape(const struct cp_case *c, int rank);

// Number of rows for the queries of a team; rows before those of the member.
int64_t bias_rows(const struct cp_case *c, struct team team);
int64_t bias_row_base(const struct cp_case *c, struct team team, int member);

// The row of the first query of a member's span, whose `row` is the member's. Those of its next
// queries follow in this step.
int64_t bias_row_of(const struct cp_case *c, struct team team, int member, const struct span *span);
int64_t bias_row_step(const struct cp_case *c);

// Distance of consecutive heads of `rows` rows each; 0: one head for all.
int64_t bias_head_stride(const struct cp_case *c, int64_t rows);

// True if each element is the bias of one query and key of one head.
bool bias_is_once(const struct cp_case *c);

// The `count` elements of the gradient that a rank delivers: from `first` on if it is summed over
// all ranks; else first is 0.
struct bias_share {
    int64_t first, count;
};
struct bias_share bias_share(const struct cp_case *c, int rank);

#endif
