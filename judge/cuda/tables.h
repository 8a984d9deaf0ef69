// SPDX-License-Identifier: Apache-2.0
// Tables of a case for the reference on the device: the sequences, the tiles of the rank's rows,
// and the places of the statistics of all ranks' queries.
//
// The rows of a side are the tokens of its tiles, numbered chunk by chunk, span by span, token by
// token. Padding has no number. A sample has fewer tiles and rows.
#ifndef CPATTN_JUDGE_CUDA_TABLES_H
#define CPATTN_JUDGE_CUDA_TABLES_H

#include "judge/cuda/reference_cuda.h"
#include "judge/tiles.h"
#include "plan/shard.h"

// Fills one entry for each sequence, and tokens and length_max of `r`, which are 0 before.
void tables_sequences(struct reference_cuda *r, struct reference_sequence *sequences);

// The number of tokens of a side that a rank holds, without padding; the maximum number of tiles.
int64_t tables_rows(const struct cp_case *c, enum shard_side side, int rank);
int64_t tables_tiles_max(const struct cp_case *c, enum shard_side side, int rank);

// Fills the judged tiles of a side in the order of their rows; all tiles if the fraction is 1
// (judge/tiles.h). `drawn` and `tiles` have room for one tile per span and one per 64 tokens.
// Returns the number of tiles.
int64_t tables_tiles(const struct cp_case *c, enum shard_side side, int rank,
                     const struct span *spans, int count, double fraction, struct tile *drawn,
                     struct reference_tile *tiles);

// Copies tiles in descending order of work.
void tables_sort(const struct cp_case *c, enum shard_side side, const struct reference_tile *tiles,
                 int64_t count, struct reference_tile *sorted);

// The maximum number of pieces of all ranks.
int64_t tables_pieces_max(const struct cp_case *c);

// Fills the pieces of all ranks' queries. `statistics`: those of each rank [heads][rows], in device
// memory. `spans` has room for shard_spans_max(). Returns the number of pieces.
int64_t tables_pieces(const struct cp_case *c, const struct reference_sequence *sequences,
                      const void *const statistics[WORLD_SIZE_MAX], struct span *spans,
                      struct reference_piece *pieces);

#endif
