// SPDX-License-Identifier: Apache-2.0
// Where the bias and its gradient lie on a rank.
//
// The bias is [1 or batch][1 or heads][1 or seqlen_q][seqlen_kv] for people. In memory a rank has
// [heads][rows][seqlen_kv]: one head for all, or those that it computes in its team (a guest's rank
// is a team of its own, whatever the comm is); and as rows
// - the rows of the team's queries, member behind member, where every sequence and query has a row
//   of its own,
// - the local tokens of a sequence of the team, member behind member, where sequences share them,
// - every position, where sequences share rows and are packed (thd): the same on all ranks,
// - the sequences, or one for all, where all queries share one: the same on all ranks.
// In the first two cases gradients belong to the tokens of one rank: it delivers [1 or all
// heads][rows of its own tokens][seqlen_kv]. In the last two all ranks have a part in every
// element: the gradient is summed over them and rank r of P delivers elements [r*n/P, (r+1)*n/P) of
// the n of [1 or all heads][rows][seqlen_kv].
#ifndef CPATTN_PLAN_BIAS_H
#define CPATTN_PLAN_BIAS_H

#include "plan/team.h"

// Whether these dimensions are more than 1, that is, of the case. False without a bias.
bool bias_has_batch(const struct cp_case *c);
bool bias_has_heads(const struct cp_case *c);
bool bias_has_queries(const struct cp_case *c);

// Whether the gradient is summed over all ranks.
bool bias_is_whole(const struct cp_case *c);

// The ranks that deal heads among themselves, this one among them; a guest's rank alone.
struct team bias_team(const struct cp_case *c, int rank);

// All that a rank computes with: [heads][rows][columns], 0 heads where it computes none.
// head_first: the case's head that comes first.
struct bias_shape {
    int32_t head_first, heads;
    int64_t rows, columns;
};
struct bias_shape bias_shape(const struct cp_case *c, int rank);

// Rows for the queries of a team, and those before the member's.
int64_t bias_rows(const struct cp_case *c, struct team team);
int64_t bias_row_base(const struct cp_case *c, struct team team, int member);

// The row of the first query of a member's span, whose `row` is the member's. Those of its next
// queries follow in this step.
int64_t bias_row_of(const struct cp_case *c, struct team team, int member, const struct span *span);
int64_t bias_row_step(const struct cp_case *c);

// Distance of consecutive heads that have `rows` rows each, 0: one for all.
int64_t bias_head_stride(const struct cp_case *c, int64_t rows);

// What a rank delivers of the gradient: `count` elements. Where it is summed over all ranks, those
// from `first` on, else first is 0.
struct bias_share {
    int64_t first, count;
};
struct bias_share bias_share(const struct cp_case *c, int rank);

#endif
