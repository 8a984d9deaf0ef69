// SPDX-License-Identifier: Apache-2.0
// Sharding: which tokens of a sequence a rank holds, and their rows in its memory.
//
// The n tokens that a sequence occupies are cut into chunks: chunk k of C covers [k*n/C, (k+1)*n/C)
// (integer division). Zigzag has 2P chunks, and rank r gets the chunks r and 2P-1-r; contiguous has
// P chunks, and rank r gets chunk r. n need not be divisible. A chunk may be empty or only padding.
//
// The local tokens of a sequence are its chunks in order, including padding. A row of a local
// tensor is heads*head_dim elements of one token. With bshd the tokens of a sequence are
// consecutive (row step 1), with sbhd they are `batch` rows apart. With thd they are consecutive,
// and the sequences follow each other without a gap.
#ifndef CPATTN_PLAN_SHARD_H
#define CPATTN_PLAN_SHARD_H

#include "plan/case.h"

// Tokens of one sequence with consecutive positions and equal distances in memory. Padding is in no
// span.
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

// Number of chunks of a rank (2 zigzag, 1 contiguous); global number of its i-th chunk.
int shard_chunks_per_rank(const struct cp_case *c);
int shard_chunk_of(const struct cp_case *c, int rank, int i);

// Number of local tokens of a sequence on a rank, including padding.
int64_t shard_tokens(const struct cp_case *c, enum shard_side side, int rank, int32_t sequence);

// True if all sequences of a side certainly occupy the same number of tokens: always with bshd and
// sbhd, with thd only without lists.
bool shard_is_alike(const struct cp_case *c);

// Number of tokens of the rank's i-th chunk of a sequence, including padding.
int64_t shard_chunk_tokens(const struct cp_case *c, enum shard_side side, int rank,
                           int32_t sequence, int i);

// Rows of the rank's local tensor (all sequences with padding); the maximum over all ranks.
int64_t shard_rows(const struct cp_case *c, enum shard_side side, int rank);
int64_t shard_rows_max(const struct cp_case *c, enum shard_side side);

// Rows between consecutive tokens of a sequence in local memory: batch in sbhd, else 1.
int64_t shard_row_step(const struct cp_case *c);

// Maximum number of spans of shard_spans() for this case: batch * chunks per rank.
int shard_spans_max(const struct cp_case *c);

// Fills in the non-empty spans of a rank, sequence by sequence, in ascending position. Returns
// their number.
int shard_spans(const struct cp_case *c, enum shard_side side, int rank, struct span *spans);

// The same for padding, whose positions follow those of the tokens. Both together cover all rows of
// the rank.
int shard_padding(const struct cp_case *c, enum shard_side side, int rank, struct span *spans);

#endif
