// SPDX-License-Identifier: Apache-2.0
// Layout of the bias and its gradient on a rank.
//
// The case's bias is [1 or batch][1 or heads][1 or seqlen_q][seqlen_kv]. A rank stores
// [heads][rows][seqlen_kv]: one head if all heads share the bias, else the heads that the rank
// computes in its team. (A guest's rank is a team of its own, whatever the comm is.) The rows are
// - the query rows of the team, member by member, if every sequence and query has its own row;
// - the local tokens of one sequence of the team, member by member, if sequences share rows;
// - all positions, if sequences share rows and are packed (thd); the same on all ranks;
// - one row per sequence, or a single row, if all queries share a row; the same on all ranks.
// In the first two cases each element of the gradient belongs to the tokens of one rank. That rank
// delivers [1 or all heads][rows of its own tokens][seqlen_kv]. In the last two all ranks
// contribute to every element: the gradient is summed over the ranks, and rank r of P delivers
// elements [r*n/P, (r+1)*n/P) of the n elements of [1 or all heads][rows][seqlen_kv].
#ifndef CPATTN_PLAN_BIAS_H
#define CPATTN_PLAN_BIAS_H

#include "plan/team.h"

// True if the bias has this dimension (batch, heads, seqlen_q) in full; false if it is broadcast,
// or without a bias.
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

// Number of bias rows of a team; index of the first row of a member, 0 if all ranks have the same
// rows.
int64_t bias_rows(const struct cp_case *c, struct team team);
int64_t bias_row_base(const struct cp_case *c, struct team team, int member);

// Bias row of the first query of a member's span; span->row counts rows of the member's own tensor.
// Step from there to the bias row of the next query; 0: all queries share a row.
int64_t bias_row_of(const struct cp_case *c, struct team team, int member, const struct span *span);
int64_t bias_row_step(const struct cp_case *c);

// Elements from one head to the next, with `rows` rows per head; 0: all heads share the bias.
int64_t bias_head_stride(const struct cp_case *c, int64_t rows);

// True if each element applies to one head, one query and one key: nothing is broadcast.
bool bias_is_once(const struct cp_case *c);

// Elements of the gradient that a rank delivers. If it is summed over all ranks: elements [first,
// first + count) of the sum. Else `count` elements of its own tokens, and first is 0.
struct bias_share {
    int64_t first, count;
};
struct bias_share bias_share(const struct cp_case *c, int rank);

#endif
