// SPDX-License-Identifier: Apache-2.0
// Sharding: which rows of a sequence a rank holds, and where they lie in its memory.
//
// What a sequence occupies, n tokens, is cut into chunks as evenly as n allows: chunk k of C covers
// [k*n/C, (k+1)*n/C) (integer division). Zigzag cuts 2P chunks and gives rank r the chunks r and
// 2P-1-r, contiguous cuts P and gives it chunk r. Nothing has to divide; a chunk may be empty, or
// hold nothing but padding.
//
// The local tokens of a sequence are its chunks one behind the other, padding included. A row of a
// local tensor is addressed by its index in units of heads*head_dim elements. In bshd the tokens of
// a sequence are consecutive (row step 1), in sbhd they are `batch` rows apart. In thd they are
// consecutive and the sequences follow each other without a gap, each with as many local tokens as
// it has on this rank.
#ifndef CPATTN_PLAN_SHARD_H
#define CPATTN_PLAN_SHARD_H

#include "plan/case.h"

// A run of tokens of one sequence, consecutive in position and evenly spaced in memory. Padding is
// in no span.
struct span {
    int32_t sequence;
    int32_t chunk;    // 0 or 1: first or second chunk of the rank that owns it
    int64_t row;      // of the first token in the owner's local tensor
    int64_t len;      // tokens, > 0
    int64_t position; // of the first token in its sequence
    int64_t bias_row; // queries of team_spans() only: of the first token (plan/bias.h)
};

// Tokens of chunk `chunk` of `chunks` of a sequence that occupies `len` tokens: [*begin, *end).
void shard_chunk(int64_t len, int chunks, int chunk, int64_t *begin, int64_t *end);

// Chunks a rank holds (2 zigzag, 1 contiguous) and the global number of its i-th.
int shard_chunks_per_rank(const struct cp_case *c);
int shard_chunk_of(const struct cp_case *c, int rank, int i);

// Local tokens of a sequence on a rank, padding included.
int64_t shard_tokens(const struct cp_case *c, enum shard_side side, int rank, int32_t sequence);

// Whether all sequences of a side occupy the same, without a list that says so.
bool shard_is_alike(const struct cp_case *c);

// Tokens of the rank's i-th chunk of a sequence, padding included.
int64_t shard_chunk_tokens(const struct cp_case *c, enum shard_side side, int rank,
                           int32_t sequence, int i);

// Rows of the rank's local tensor (all sequences and their padding), and the largest of any rank.
int64_t shard_rows(const struct cp_case *c, enum shard_side side, int rank);
int64_t shard_rows_max(const struct cp_case *c, enum shard_side side);

// Rows between consecutive tokens of a sequence in local memory: batch in sbhd, else 1.
int64_t shard_row_step(const struct cp_case *c);

// Most spans that shard_spans() can deliver for this case: batch * chunks per rank.
int shard_spans_max(const struct cp_case *c);

// The non-empty spans of a rank, sequence by sequence, chunks in ascending position. Returns how
// many.
int shard_spans(const struct cp_case *c, enum shard_side side, int rank, struct span *spans);

// The same of the padding, whose positions count on from those of the tokens: together they are the
// rows of the rank.
int shard_padding(const struct cp_case *c, enum shard_side side, int rank, struct span *spans);

#endif
