// SPDX-License-Identifier: Apache-2.0
// What the reference on the device has to know of a case in tables: sequences, the rank's rows in
// tiles, and where the statistics of all ranks' queries lie.
//
// The rows of a side are those of its tiles, numbered chunk by chunk, span by span, token by token;
// padding has no number. Of a sample there are fewer tiles, and rows.
#ifndef CPATTN_JUDGE_CUDA_TABLES_H
#define CPATTN_JUDGE_CUDA_TABLES_H

#include "judge/cuda/reference_cuda.h"
#include "judge/tiles.h"
#include "plan/shard.h"

// Fills one entry for each sequence, and of `r` the tokens and the longest sequence.
void tables_sequences(struct reference_cuda *r, struct reference_sequence *sequences);

// Tokens of a side that a rank holds, without padding, and most tiles of them.
int64_t tables_rows(const struct cp_case *c, enum shard_side side, int rank);
int64_t tables_tiles_max(const struct cp_case *c, enum shard_side side, int rank);

// The tiles of a side that are judged, or all with a fraction of 1 (judge/tiles.h), in the order of
// their rows. `drawn` and `tiles` are room for a tile of each span and one for each 64 tokens.
// Returns how many.
int64_t tables_tiles(const struct cp_case *c, enum shard_side side, int rank,
                     const struct span *spans, int count, double fraction, struct tile *drawn,
                     struct reference_tile *tiles);

// A copy of tiles in which those with most work come first.
void tables_sort(const struct cp_case *c, enum shard_side side, const struct reference_tile *tiles,
                 int64_t count, struct reference_tile *sorted);

// Most pieces of all ranks.
int64_t tables_pieces_max(const struct cp_case *c);

// The pieces of all ranks' queries. `statistics` are of each rank [heads][rows]; `spans` is room
// for shard_spans_max(). Returns how many.
int64_t tables_pieces(const struct cp_case *c, const struct reference_sequence *sequences,
                      const void *const statistics[WORLD_SIZE_MAX], struct span *spans,
                      struct reference_piece *pieces);

#endif
